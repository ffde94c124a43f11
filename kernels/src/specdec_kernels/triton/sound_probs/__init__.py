"""`sound_probs`: own copies of drafted tokens and of q, without what is no distribution."""

from __future__ import annotations

import torch

from specdec_kernels.triton.arguments import check_tensor, shown
from specdec_kernels.triton.dispatch import Backend, backend_for
from specdec_kernels.triton.sound_probs.config import LaunchConfig, heuristic
from specdec_kernels.triton.sound_probs.reference import sound_probs_reference

__all__ = ["sound_probs"]


def sound_probs(
    token_ids: torch.Tensor, probs: torch.Tensor, tolerance: float, *, config: LaunchConfig | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Copy chains and the q that each node was drawn from; a row that is no distribution becomes 0, and its node padding.

    A number below 0 counts as 0. A row is no distribution if its sum is not a number or farther from 1 than the tolerance. The
    kernel sums in another order than torch, in the dtype of q.

    Args:
        token_ids: `[B, N]` int64, unit stride along N.
        probs: `[B, N + 1, V]` float32 or float64, unit stride along V.
        tolerance: see above.
        config: launch parameters of the Triton kernel; None uses the heuristic.

    Returns:
        contiguous token ids and q.

    Raises:
        ValueError: naming the argument whose shape, type, device or layout is wrong.
    """
    if token_ids.dim() != 2 or probs.dim() != 3:
        raise ValueError(
            f"token_ids must be [B, N] and probs [B, N + 1, V], not {shown(token_ids)} and {shown(probs)}"
        )
    size, width = token_ids.shape
    shape = (size, width + 1, probs.shape[2])
    check_tensor("probs", probs, shape, (torch.float32, torch.float64), probs, is_row_strided=True)
    check_tensor("token_ids", token_ids, (size, width), (torch.int64,), probs, is_row_strided=True)
    if not probs.numel() or backend_for(probs) is Backend.REFERENCE:
        return sound_probs_reference(token_ids, probs, tolerance)
    from specdec_kernels.triton.sound_probs.kernel import sound_probs_triton  # imports Triton

    chosen = config or heuristic(probs.shape[2])
    ids = torch.empty((size, width), dtype=torch.int64, device=probs.device)
    own = torch.empty(shape, dtype=probs.dtype, device=probs.device)
    sound_probs_triton(token_ids, probs, tolerance, ids, own, chosen)
    return ids, own
