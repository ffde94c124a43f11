"""`greedy_verify`: which drafted tokens stand at temperature 0, and what is emitted."""

from __future__ import annotations

from typing import NamedTuple

import torch

from specdec_kernels.dispatch import Backend, backend_for
from specdec_kernels.greedy_verify.config import LaunchConfig, heuristic
from specdec_kernels.greedy_verify.reference import greedy_verify_reference

__all__ = ["ChainVerdict", "greedy_verify"]

_IDS = (torch.int32, torch.int64)


class ChainVerdict(NamedTuple):
    """What stands of every request's chain."""

    num_accepted: torch.Tensor
    """`[B]` int64: drafted tokens that stand."""
    token_ids: torch.Tensor
    """`[B, K + 1]` int64: those tokens and one more, padded with -1."""


def greedy_verify(
    logits: torch.Tensor,
    draft_token_ids: torch.Tensor,
    row_starts: torch.Tensor,
    num_nodes: torch.Tensor,
    *,
    out: ChainVerdict | None = None,
    config: LaunchConfig | None = None,
) -> ChainVerdict:
    """Verify chains greedily: a drafted token stands where it is the target's best and all before it stand.

    Row `row_starts[b] + j` of the logits is the target's at node j of request b: j = 0 follows the last committed
    token, j follows drafted token j - 1. Ties go to the lowest id; a NaN never wins. Nothing is copied to the host, so
    the row numbers are the caller's to keep in range.

    Args:
        logits: `[R, V]` floating point, unit stride along V.
        draft_token_ids: `[B, K]` integer, padded with -1; K may be 0.
        row_starts: `[B]` integer: first row of each request.
        num_nodes: `[B]` integer, 0 to K: drafted tokens of each request.
        out: tensors to write to; None allocates them.
        config: launch parameters of the Triton kernels; None takes the heuristic.

    Raises:
        ValueError: naming the argument whose shape, type, device or layout is wrong.
    """
    _check(logits, draft_token_ids, row_starts, num_nodes)
    if out is None:
        out = _allocate(draft_token_ids)
    _check_out(out, draft_token_ids)
    if draft_token_ids.shape[0] == 0:
        return out
    if backend_for(logits) is Backend.REFERENCE:
        num_accepted, token_ids = greedy_verify_reference(logits, draft_token_ids, row_starts, num_nodes)
        out.num_accepted.copy_(num_accepted)
        out.token_ids.copy_(token_ids)
        return out
    from specdec_kernels.greedy_verify.kernel import greedy_verify_triton  # imports Triton

    chosen = config or heuristic(logits.shape[1])
    greedy_verify_triton(logits, draft_token_ids, row_starts, num_nodes, *out, chosen)
    return out


def _allocate(draft_token_ids: torch.Tensor) -> ChainVerdict:
    num_requests, width = draft_token_ids.shape
    num_accepted = torch.empty(num_requests, dtype=torch.int64, device=draft_token_ids.device)
    return ChainVerdict(num_accepted, num_accepted.new_empty((num_requests, width + 1)))


def _check(
    logits: torch.Tensor, draft_token_ids: torch.Tensor, row_starts: torch.Tensor, num_nodes: torch.Tensor
) -> None:
    if logits.dim() != 2 or logits.shape[1] == 0 or not logits.is_floating_point():
        raise ValueError(f"logits must be floating point [R, V] with V > 0, not {_shown(logits)}")
    if logits.stride(1) != 1 and logits.shape[1] > 1:
        raise ValueError(
            f"logits must have unit stride along V, not strides {logits.stride()}: pass .contiguous()"
        )
    if draft_token_ids.dim() != 2 or draft_token_ids.dtype not in _IDS:
        raise ValueError(f"draft_token_ids must be int32 or int64 [B, K], not {_shown(draft_token_ids)}")
    if draft_token_ids.stride(1) != 1 and draft_token_ids.shape[1] > 1:
        raise ValueError(
            f"draft_token_ids must have unit stride along K, not strides {draft_token_ids.stride()}"
        )
    num_requests = draft_token_ids.shape[0]
    for name, tensor in (("row_starts", row_starts), ("num_nodes", num_nodes)):
        if tensor.shape != (num_requests,) or tensor.dtype not in _IDS or not tensor.is_contiguous():
            raise ValueError(
                f"{name} must be contiguous int32 or int64 [{num_requests}], not {_shown(tensor)}"
            )
    if num_requests > 0 and logits.shape[0] == 0:
        raise ValueError("logits must have at least one row per request, not none")
    for name, tensor in (
        ("draft_token_ids", draft_token_ids),
        ("row_starts", row_starts),
        ("num_nodes", num_nodes),
    ):
        if tensor.device != logits.device:
            raise ValueError(
                f"{name} is on {tensor.device}, logits on {logits.device}: they must be on one device"
            )


def _check_out(out: ChainVerdict, draft_token_ids: torch.Tensor) -> None:
    num_requests, width = draft_token_ids.shape
    for name, shape in (("num_accepted", (num_requests,)), ("token_ids", (num_requests, width + 1))):
        tensor: torch.Tensor = getattr(out, name)
        if tensor.shape != shape or tensor.dtype is not torch.int64 or not tensor.is_contiguous():
            raise ValueError(f"out.{name} must be contiguous int64 {list(shape)}, not {_shown(tensor)}")
        if tensor.device != draft_token_ids.device:
            raise ValueError(f"out.{name} is on {tensor.device}, the input on {draft_token_ids.device}")


def _shown(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
