"""Argument checks shared by the operations; every message names the argument, its actual and its required form."""

from __future__ import annotations

from collections.abc import Sequence

import torch

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
IDS = (torch.int32, torch.int64)


def shown(tensor: torch.Tensor) -> str:
    """Return dtype and shape of a tensor, formatted for messages."""
    return f"{_name(tensor.dtype)} {list(tensor.shape)}"


def check_tensor(
    name: str,
    tensor: torch.Tensor,
    shape: Sequence[int],
    dtypes: Sequence[torch.dtype],
    like: torch.Tensor,
    *,
    is_row_strided: bool = False,
) -> None:
    """Reject a tensor without this shape, one of these dtypes, a contiguous layout and the device of `like`.

    Args:
        name: of the argument.
        tensor: its value.
        shape: required shape.
        dtypes: allowed dtypes.
        like: a tensor on the required device.
        is_row_strided: allow any layout with unit stride along the last dimension.

    Raises:
        ValueError: naming the argument.
    """
    if (
        tensor.shape == shape
        and tensor.dtype in dtypes
        and tensor.is_contiguous()
        and tensor.device == like.device
    ):
        return  # as nearly always: the parts of a message are not made
    layout = "" if is_row_strided else "contiguous "
    wanted = f"{layout}{' or '.join(map(_name, dtypes))} {list(shape)}"
    if tuple(tensor.shape) != tuple(shape) or tensor.dtype not in dtypes:
        raise ValueError(f"{name} must be {wanted}, not {shown(tensor)}")
    if is_row_strided:
        _check_row_stride(name, tensor)
    elif not tensor.is_contiguous():
        raise ValueError(f"{name} must be {wanted}, not with strides {tensor.stride()}")
    _check_device(name, tensor, like)


def check_rows(name: str, tensor: torch.Tensor, sizes: Sequence[int | str], like: torch.Tensor) -> None:
    """Reject a tensor without the shape `sizes`, the dtype and device of `like`, and unit stride along the last dimension.

    Args:
        name: of the argument.
        tensor: its value.
        sizes: one entry per dimension; a string names a size that may be any number above 0.
        like: floating-point tensor with the required dtype and device.

    Raises:
        ValueError: naming the argument.
    """
    fits = tensor.dim() == len(sizes) and all(
        (size > 0 if isinstance(wanted, str) else size == wanted)
        for size, wanted in zip(tensor.shape, sizes, strict=True)
    )
    if not fits or tensor.dtype is not like.dtype or not tensor.is_floating_point():
        kind = _name(like.dtype) if like.is_floating_point() else "floating point"
        raise ValueError(f"{name} must be {kind} [{', '.join(map(str, sizes))}], not {shown(tensor)}")
    _check_row_stride(name, tensor)
    _check_device(name, tensor, like)


def check_input(name: str, tensor: torch.Tensor, sizes: Sequence[str]) -> None:
    """Reject a layer input that is not one of `FLOATS` or has no unit stride along the last dimension.

    Args:
        name: of the argument.
        tensor: its value.
        sizes: names of its sizes; only the first, the rows of the pass, may be 0.

    Raises:
        ValueError: naming the argument.
    """
    if tensor.dim() != len(sizes) or tensor.dtype not in FLOATS:
        raise ValueError(
            f"{name} must be float32, float16 or bfloat16 [{', '.join(sizes)}], not {shown(tensor)}"
        )
    check_rows(name, tensor, (tensor.shape[0], *sizes[1:]), like=tensor)


def check_vector(name: str, tensor: torch.Tensor, size: int, like: torch.Tensor) -> None:
    """Reject a tensor that is not contiguous floating point `[size]`, of any such dtype, on the device of `like`.

    Raises:
        ValueError: naming the argument.
    """
    fits = tensor.shape == (size,) and tensor.is_floating_point() and tensor.is_contiguous()
    if not fits or tensor.device != like.device:
        raise ValueError(
            f"{name} must be contiguous floating point [{size}] on {like.device}, "
            f"not {shown(tensor)} on {tensor.device}"
        )


def check_logits(name: str, logits: torch.Tensor) -> None:
    """Reject logits that are not floating point `[R, V]` with V > 0 and unit stride along V.

    Raises:
        ValueError: naming the argument.
    """
    if logits.dim() != 2 or logits.shape[1] == 0 or not logits.is_floating_point():
        raise ValueError(f"{name} must be floating point [R, V] with V > 0, not {shown(logits)}")
    _check_row_stride(name, logits)


def check_drafts(
    logits: torch.Tensor, draft_token_ids: torch.Tensor, row_starts: torch.Tensor, num_nodes: torch.Tensor
) -> None:
    """Reject invalid logits, drafts that are not `[B, N]`, and invalid `row_starts` or `num_nodes`.

    Raises:
        ValueError: naming the argument.
    """
    check_logits("logits", logits)
    if draft_token_ids.dim() != 2 or draft_token_ids.dtype not in IDS:
        raise ValueError(f"draft_token_ids must be int32 or int64 [B, N], not {shown(draft_token_ids)}")
    check_tensor("draft_token_ids", draft_token_ids, draft_token_ids.shape, IDS, logits, is_row_strided=True)
    num_requests = draft_token_ids.shape[0]
    check_tensor("row_starts", row_starts, (num_requests,), IDS, logits)
    check_tensor("num_nodes", num_nodes, (num_requests,), IDS, logits)
    if num_requests > 0 and logits.shape[0] == 0:
        raise ValueError("logits must have at least one row per request, not none")


def check_pages(
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    key_sizes: tuple[int | str, int | str],
    value_dim: int | str,
    like: torch.Tensor,
) -> None:
    """Reject pages that are not `[N, S, Hkv, D]` keys and `[N, S, Hkv, Dv]` values with the dtype and device of `like`.

    Args:
        key_pages: keys.
        value_pages: values.
        key_sizes: Hkv and D, or their names if any size is allowed.
        value_dim: Dv, or its name if any size is allowed.
        like: see `check_rows`.

    Raises:
        ValueError: naming the argument.
    """
    check_rows("key_pages", key_pages, ("num_blocks", "block_size", *key_sizes), like)
    check_rows("value_pages", value_pages, (*key_pages.shape[:3], value_dim), like)


def check_heads(query: torch.Tensor, num_kv_heads: int, name: str) -> None:
    """Reject queries `[T, H, D]` whose H is not a multiple of the KV heads of the argument `name`.

    Raises:
        ValueError: naming both.
    """
    if query.shape[1] % num_kv_heads:
        raise ValueError(
            f"query has H={query.shape[1]} heads, which is not a multiple of the Hkv={num_kv_heads} of {name}"
        )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _check_row_stride(name: str, tensor: torch.Tensor) -> None:
    if tensor.stride(-1) != 1 and tensor.shape[-1] > 1:
        raise ValueError(
            f"{name} must have unit stride along its last dimension, not strides {tensor.stride()}"
        )


def _check_device(name: str, tensor: torch.Tensor, like: torch.Tensor) -> None:
    if tensor.device != like.device:
        raise ValueError(f"{name} is on {tensor.device}, the rest on {like.device}: use one device")
