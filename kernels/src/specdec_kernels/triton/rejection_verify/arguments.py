"""Argument checks of `rejection_verify` and `block_verify`."""

from __future__ import annotations

import torch

from specdec_kernels.triton.arguments import check_drafts, check_tensor, shown
from specdec_kernels.triton.noise.keys import NoiseKeys, check_keys
from specdec_kernels.triton.results import ChainVerdict, prepared


def checked_verdict(
    logits: torch.Tensor,
    draft_token_ids: torch.Tensor,
    row_starts: torch.Tensor,
    num_nodes: torch.Tensor,
    temperatures: torch.Tensor,
    keys: NoiseKeys,
    draft_probs: torch.Tensor | None,
    has_probs: torch.Tensor | None,
    draft_ids: torch.Tensor | None,
    out: ChainVerdict | None,
) -> ChainVerdict:
    """Check the arguments of `rejection_verify` and return `out`, or new tensors if it is None.

    Raises:
        ValueError: naming the argument whose shape, type, device or layout is wrong.
    """
    check_drafts(logits, draft_token_ids, row_starts, num_nodes)
    size, width = draft_token_ids.shape
    check_tensor("temperatures", temperatures, (size,), (torch.float32,), logits)
    check_keys(keys, size, logits)
    if draft_probs is not None:
        shape = draft_probs.shape
        if draft_probs.dim() != 3 or shape[0] != size or shape[1] < width or shape[2] == 0:
            wanted = f"[{size}, {width} or more, V'] with V' > 0"
            raise ValueError(f"draft_probs must be {wanted}, not {shown(draft_probs)}")
        types = (torch.float32, torch.float64)
        check_tensor("draft_probs", draft_probs, shape, types, logits, is_row_strided=True)
    if has_probs is not None:
        if draft_probs is None:
            raise ValueError("has_probs says which requests carry q, and draft_probs is None: pass both")
        check_tensor("has_probs", has_probs, (size,), (torch.bool,), logits)
    if draft_ids is not None:
        if draft_probs is None:
            raise ValueError(
                "draft_ids says where q has the target's ids, and draft_probs is None: pass both"
            )
        check_tensor("draft_ids", draft_ids, (logits.shape[1],), (torch.int32, torch.int64), logits)
    return prepared(ChainVerdict, ((size,), (size, width + 1), (size,)), out, like=logits)
