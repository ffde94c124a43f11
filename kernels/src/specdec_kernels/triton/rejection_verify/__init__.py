"""`rejection_verify`: speculative sampling of chains, with or without q."""

from __future__ import annotations

import torch

from specdec_kernels.triton.dispatch import Backend, backend_for
from specdec_kernels.triton.noise.keys import NoiseKeys
from specdec_kernels.triton.rejection_verify.arguments import checked_verdict
from specdec_kernels.triton.rejection_verify.config import LaunchConfig, heuristic
from specdec_kernels.triton.rejection_verify.reference import rejection_verify_reference
from specdec_kernels.triton.results import ChainVerdict, written

__all__ = ["rejection_verify"]


def rejection_verify(
    logits: torch.Tensor,
    draft_token_ids: torch.Tensor,
    row_starts: torch.Tensor,
    num_nodes: torch.Tensor,
    temperatures: torch.Tensor,
    keys: NoiseKeys,
    *,
    draft_probs: torch.Tensor | None = None,
    has_probs: torch.Tensor | None = None,
    draft_ids: torch.Tensor | None = None,
    out: ChainVerdict | None = None,
    config: LaunchConfig | None = None,
) -> ChainVerdict:
    """Verify chains by rejection sampling: accept a node with min(1, p / q), else draw from the residual max(p - q, 0).

    Leviathan et al., arXiv 2211.17192, and Chen et al., arXiv 2302.01318. With p = softmax(logits / T) the emitted tokens
    follow p if each drafted token was drawn from its q. A token without q is a point mass and is accepted with p. Row
    `row_starts[b]` of the logits follows the last committed token of request b, row `row_starts[b] + 1 + j` its node j. All
    draws are keyed: the acceptance of node j by `node_word(Stream.ACCEPT, j)`, the residual draw after n accepted tokens by
    `node_word(Stream.RESIDUAL, n)`. If the residual is empty, because p = q and rounding rejected, the token is drawn from p.
    At temperature 0 this is greedy verification, whatever q is. A token whose q is NaN is rejected. A row of logits with a
    NaN, or with nothing above -inf, counts as uniform, and is reported. Nothing is copied to the host, so the caller must keep
    row numbers in range.

    Args:
        logits: `[R, V]` floating point, unit stride along V.
        draft_token_ids: `[B, K]` integer, unit stride along K; K may be 0. Padding is not read.
        row_starts: `[B]` integer: first row of each request.
        num_nodes: `[B]` integer, 0 to K: drafted tokens of each request.
        temperatures: `[B]` float32, not negative.
        keys: of `[B]` requests; `positions` are the tokens committed when the step began.
        draft_probs: `[B, M, V']` float32 or float64, M at least K, unit stride along V': q at each draft position.
            Ids from V' on have q = 0; ids from V on are never emitted. Half precision is not allowed, since it does not sum
            to 1. None: no q at all.
        has_probs: `[B]` bool: requests that have q; None means all. The tokens of others are point masses.
        draft_ids: `[V]` int32 or int64: the id in `draft_probs` of each of the target's, -1 for those that the draft does not
            have; None where they are the same.
        out: contiguous tensors to write to; None allocates them.
        config: launch parameters of the Triton kernels; None uses the heuristic.

    Raises:
        ValueError: naming the argument whose shape, type, device or layout is wrong.
    """
    given = (
        logits,
        draft_token_ids,
        row_starts,
        num_nodes,
        temperatures,
        keys,
        draft_probs,
        has_probs,
        draft_ids,
    )
    out = checked_verdict(*given, out)
    if draft_token_ids.shape[0] == 0:
        return out
    if backend_for(logits) is Backend.REFERENCE:
        return written(out, rejection_verify_reference(*given))
    from specdec_kernels.triton.rejection_verify.launcher import rejection_verify_triton  # imports Triton

    chosen = config or heuristic(logits.shape[1])
    rejection_verify_triton(*given, *out, chosen)
    return out
