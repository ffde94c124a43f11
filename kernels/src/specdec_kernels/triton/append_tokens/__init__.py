"""`append_tokens`: the emitted tokens of a verdict behind the committed ones."""

from __future__ import annotations

import torch

from specdec.interfaces import RequestTable
from specdec_kernels.triton.append_tokens.reference import append_tokens_reference
from specdec_kernels.triton.arguments import check_tensor
from specdec_kernels.triton.dispatch import Backend, backend_for
from specdec_kernels.triton.launch import LaunchConfig

__all__ = ["append_tokens"]


def append_tokens(
    table: RequestTable,
    lines: torch.Tensor,
    num_accepted: torch.Tensor,
    token_ids: torch.Tensor,
    *,
    config: LaunchConfig | None = None,
) -> None:
    """Append the tokens of a verdict to lines of a table, in place; `RequestTable.append` is the specification.

    Args:
        table: int32 tokens `[L, W]`, contiguous, and their numbers `[L]` int64.
        lines: `[B]` int64 of each request, all of them different. Nothing is copied to the host, so the caller must keep them
            below L.
        num_accepted: `[B]` int64 accepted nodes.
        token_ids: `[B, N + 1]` int64 emitted tokens.
        config: launch parameters of the Triton kernel; None uses the heuristic.

    Raises:
        ValueError: naming the argument whose shape, type, device or layout is wrong.
    """
    size = len(lines)
    check_tensor("table.num_tokens", table.num_tokens, table.token_ids.shape[:1], (torch.int64,), lines)
    check_tensor("table.token_ids", table.token_ids, table.token_ids.shape, (torch.int32,), lines)
    check_tensor("lines", lines, (size,), (torch.int64,), lines)
    check_tensor("num_accepted", num_accepted, (size,), (torch.int64,), lines)
    check_tensor("token_ids", token_ids, (size, *token_ids.shape[1:]), (torch.int64,), lines)
    given = table.token_ids, table.num_tokens, lines, num_accepted, token_ids
    if backend_for(lines) is Backend.REFERENCE:
        append_tokens_reference(*given)
        return
    from specdec_kernels.triton.append_tokens.kernel import append_tokens_triton  # imports Triton

    append_tokens_triton(*given, config)
