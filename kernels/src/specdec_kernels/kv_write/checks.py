"""Checks of arguments that the operations on a paged cache share; every message names the argument."""

from __future__ import annotations

from collections.abc import Sequence

import torch

IDS = (torch.int32, torch.int64)


def shown(tensor: torch.Tensor) -> str:
    """Return type and shape of a tensor as messages show them."""
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def check_rows(name: str, tensor: torch.Tensor, sizes: Sequence[int | str], like: torch.Tensor) -> None:
    """Refuse what is not `sizes`, of the type and on the device of `like`, with unit stride along its last dimension.

    Args:
        name: of the argument.
        tensor: its value.
        sizes: one entry per dimension; a string is a size that is free but not 0, and its name.
        like: the tensor it must go with.

    Raises:
        ValueError: naming the argument.
    """
    fits = tensor.dim() == len(sizes) and all(
        (size > 0 if isinstance(wanted, str) else size == wanted)
        for size, wanted in zip(tensor.shape, sizes, strict=True)
    )
    if not fits or tensor.dtype is not like.dtype or not tensor.is_floating_point():
        wanted = ", ".join(map(str, sizes))
        kind = str(like.dtype).removeprefix("torch.") if like.is_floating_point() else "floating point"
        raise ValueError(f"{name} must be {kind} [{wanted}], not {shown(tensor)}")
    if tensor.stride(-1) != 1 and tensor.shape[-1] > 1:
        raise ValueError(
            f"{name} must have unit stride along its last dimension, not strides {tensor.stride()}"
        )
    if tensor.device != like.device:
        raise ValueError(f"{name} is on {tensor.device}, the rest on {like.device}: it must be one device")


def check_ids(
    name: str, tensor: torch.Tensor, shape: Sequence[int], device: torch.device, dtypes: Sequence[torch.dtype]
) -> None:
    """Refuse what is not a contiguous integer tensor of `shape` on `device`.

    Raises:
        ValueError: naming the argument.
    """
    if tensor.shape != torch.Size(shape) or tensor.dtype not in dtypes or not tensor.is_contiguous():
        names = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise ValueError(f"{name} must be contiguous {names} {list(shape)}, not {shown(tensor)}")
    if tensor.device != device:
        raise ValueError(f"{name} is on {tensor.device}, the rest on {device}: it must be one device")


def check_pages(
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    key_sizes: tuple[int | str, int | str],
    value_dim: int | str,
    like: torch.Tensor,
) -> None:
    """Refuse pages that are not `[N, S, Hkv, D]` keys and `[N, S, Hkv, Dv]` values that go with `like`.

    Args:
        key_pages: keys.
        value_pages: values.
        key_sizes: Hkv and D, or their names where they are free.
        value_dim: Dv, or its name where it is free.
        like: see `check_rows`.

    Raises:
        ValueError: naming the argument.
    """
    check_rows("key_pages", key_pages, ("num_blocks", "block_size", *key_sizes), like)
    check_rows("value_pages", value_pages, (*key_pages.shape[:3], value_dim), like)
