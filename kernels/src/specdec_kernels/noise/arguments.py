"""Checks of arguments that operations share."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdec_kernels.noise.keys import NoiseKeys

IDS = (torch.int32, torch.int64)


def shown(tensor: torch.Tensor) -> str:
    """Return type and shape of a tensor for a message."""
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def check_tensor(
    name: str,
    tensor: torch.Tensor,
    shape: Sequence[int],
    dtypes: Sequence[torch.dtype],
    like: torch.Tensor,
    *,
    is_row_strided: bool = False,
) -> None:
    """Check one tensor.

    Args:
        name: of the argument.
        tensor: to check.
        shape: that it must have.
        dtypes: of which it must have one.
        like: a tensor whose device it must be on.
        is_row_strided: allow any layout with unit stride along the last dimension.

    Raises:
        ValueError: naming the argument.
    """
    wanted = f"{' or '.join(str(dtype).removeprefix('torch.') for dtype in dtypes)} {list(shape)}"
    if tuple(tensor.shape) != tuple(shape) or tensor.dtype not in dtypes:
        raise ValueError(f"{name} must be {wanted}, not {shown(tensor)}")
    if is_row_strided:
        if tensor.stride(-1) != 1 and tensor.shape[-1] > 1:
            raise ValueError(
                f"{name} must have unit stride along its last dimension, not strides {tensor.stride()}"
            )
    elif not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous, not with strides {tensor.stride()}")
    if tensor.device != like.device:
        raise ValueError(f"{name} is on {tensor.device}, other arguments on {like.device}: use one device")


def check_logits(name: str, logits: torch.Tensor) -> None:
    """Check logits `[R, V]`: floating point, V > 0, unit stride along V.

    Raises:
        ValueError: naming the argument.
    """
    if logits.dim() != 2 or logits.shape[1] == 0 or not logits.is_floating_point():
        raise ValueError(f"{name} must be floating point [R, V] with V > 0, not {shown(logits)}")
    check_tensor(name, logits, logits.shape, (logits.dtype,), logits, is_row_strided=True)


def check_keys(keys: NoiseKeys, size: int, like: torch.Tensor) -> None:
    """Check that keys are int64 `[size]`.

    Raises:
        ValueError: naming the field.
    """
    for name, tensor in zip(NoiseKeys._fields, keys, strict=True):
        check_tensor(f"keys.{name}", tensor, (size,), (torch.int64,), like)


def check_drafts(
    logits: torch.Tensor, draft_token_ids: torch.Tensor, row_starts: torch.Tensor, num_nodes: torch.Tensor
) -> None:
    """Check drafts `[B, N]` and where their logits rows lie.

    Raises:
        ValueError: naming the argument.
    """
    if draft_token_ids.dim() != 2:
        raise ValueError(f"draft_token_ids must be int32 or int64 [B, N], not {shown(draft_token_ids)}")
    check_tensor("draft_token_ids", draft_token_ids, draft_token_ids.shape, IDS, logits, is_row_strided=True)
    num_requests = draft_token_ids.shape[0]
    check_tensor("row_starts", row_starts, (num_requests,), IDS, logits)
    check_tensor("num_nodes", num_nodes, (num_requests,), IDS, logits)
    if num_requests > 0 and logits.shape[0] == 0:
        raise ValueError("logits must have at least one row per request, not none")
