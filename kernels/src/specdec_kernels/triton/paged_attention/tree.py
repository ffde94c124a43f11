"""Tree masks as bits."""

from __future__ import annotations

import torch

from specdec_kernels.triton.arguments import shown

WORD = 64
"""Rows of a tree per word of a mask."""


def pack_tree_mask(visible: torch.Tensor) -> torch.Tensor:
    """Return a tree mask as bits, without a copy to the host.

    Args:
        visible: `[T, W]` bool: whether a row attends to row w of its own request in this pass. Rows of chains are all True.

    Returns:
        `[T, ceil(W / 64)]` int64: bit r % 64 of word r // 64 is row r; bits from W on are set.

    Raises:
        ValueError: if `visible` is not bool `[T, W]`.
    """
    if visible.dim() != 2 or visible.dtype is not torch.bool:
        raise ValueError(f"visible must be bool [T, W], not {shown(visible)}")
    num_rows, width = visible.shape
    bits = visible.new_ones((num_rows, -(-width // WORD) * WORD))
    bits[:, :width] = visible
    shifts = torch.arange(WORD, device=visible.device)
    return (bits.view(num_rows, -1, WORD).long() << shifts).sum(2)


def unpack_tree_mask(tree_mask: torch.Tensor, width: int) -> torch.Tensor:
    """Return `[T, width]` bool; see `pack_tree_mask`. Rows beyond the mask are visible."""
    shifts = torch.arange(WORD, device=tree_mask.device)
    bits = ((tree_mask[:, :, None] >> shifts) & 1).bool().flatten(1)[:, :width]
    visible = bits.new_ones((tree_mask.shape[0], width))
    visible[:, : bits.shape[1]] = bits
    return visible
