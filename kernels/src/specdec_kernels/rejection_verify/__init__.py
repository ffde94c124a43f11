"""`rejection_verify`: speculative sampling of chains, with q or without."""

from __future__ import annotations

import torch

from specdec_kernels.dispatch import Backend, backend_for
from specdec_kernels.greedy_verify import ChainVerdict
from specdec_kernels.noise.arguments import check_drafts, check_keys, check_logits, check_tensor, shown
from specdec_kernels.noise.keys import NoiseKeys
from specdec_kernels.rejection_verify.config import LaunchConfig, heuristic
from specdec_kernels.rejection_verify.reference import rejection_verify_reference

__all__ = ["checked_verdict", "rejection_verify"]


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
    out: ChainVerdict | None = None,
    config: LaunchConfig | None = None,
) -> ChainVerdict:
    """Verify chains by rejection sampling: a node stands with min(1, p / q), the first rejected one leaves max(p - q, 0).

    Leviathan et al., arXiv 2211.17192, and Chen et al., arXiv 2302.01318. With p = softmax(logits / T) what is emitted follows
    p, given that q is the law each token was drawn from; a token without q is a point mass and stands with p. Row
    `row_starts[b]` of the logits follows the last committed token of request b, row `row_starts[b] + 1 + j` its node j. All
    draws are keyed: that over node j by `node_word(Stream.ACCEPT, j)`, the race after n accepted tokens by
    `node_word(Stream.RESIDUAL, n)`. Where nothing is left of p, because p = q and rounding rejected, the token is drawn from p.
    At temperature 0 that is greedy verification, whatever q says. A NaN is as good as forbidden, in p and in q, and a row
    without a number gives 0. Nothing is copied to the host, so row numbers are the caller's to keep in range.

    Args:
        logits: `[R, V]` floating point, unit stride along V.
        draft_token_ids: `[B, K]` integer, unit stride along K; K may be 0. Padding is not looked at.
        row_starts: `[B]` integer: first row of each request.
        num_nodes: `[B]` integer, 0 to K: drafted tokens of each request.
        temperatures: `[B]` float32, not negative.
        keys: of `[B]` requests; `positions` are the tokens committed when the step began.
        draft_probs: `[B, M, V']` float32 or float64, M at least K, unit stride along V': q of the token drafted at each place.
            Ids from V' on have none, ids from V on are never emitted. Half precision does not sum to 1. None: no q at all.
        has_probs: `[B]` bool: requests that carry q; None means all. The tokens of others are point masses.
        out: contiguous tensors to write to; None allocates them.
        config: launch parameters of the Triton kernels; None takes the heuristic.

    Raises:
        ValueError: naming the argument whose shape, type, device or layout is wrong.
    """
    given = (logits, draft_token_ids, row_starts, num_nodes, temperatures, keys, draft_probs, has_probs)
    out = checked_verdict(*given, out)
    if draft_token_ids.shape[0] == 0:
        return out
    if backend_for(logits) is Backend.REFERENCE:
        for tensor, result in zip(out, rejection_verify_reference(*given), strict=True):
            tensor.copy_(result)
        return out
    from specdec_kernels.rejection_verify.kernel import rejection_verify_triton  # imports Triton

    rejection_verify_triton(*given, *out, config or heuristic(logits.shape[1]))
    return out


def checked_verdict(
    logits: torch.Tensor,
    draft_token_ids: torch.Tensor,
    row_starts: torch.Tensor,
    num_nodes: torch.Tensor,
    temperatures: torch.Tensor,
    keys: NoiseKeys,
    draft_probs: torch.Tensor | None,
    has_probs: torch.Tensor | None,
    out: ChainVerdict | None,
) -> ChainVerdict:
    """Check the arguments of `rejection_verify`, and return `out`, or new tensors for None.

    Raises:
        ValueError: naming the argument whose shape, type, device or layout is wrong.
    """
    check_logits("logits", logits)
    check_drafts(logits, draft_token_ids, row_starts, num_nodes)
    size, width = draft_token_ids.shape
    check_tensor("temperatures", temperatures, (size,), (torch.float32,), logits)
    check_keys(keys, size, logits)
    if draft_probs is not None:
        shape = draft_probs.shape
        if draft_probs.dim() != 3 or shape[0] != size or shape[1] < width or shape[2] == 0:
            wanted = f"[{size}, {width} or more, V'] with V' > 0"
            raise ValueError(f"draft_probs must be {wanted}, not {shown(draft_probs)}")
        check_tensor(
            "draft_probs", draft_probs, shape, (torch.float32, torch.float64), logits, is_row_strided=True
        )
    if has_probs is not None:
        if draft_probs is None:
            raise ValueError("has_probs says which requests carry q, and draft_probs is None: pass both")
        check_tensor("has_probs", has_probs, (size,), (torch.bool,), logits)
    if out is None:
        num_accepted = torch.empty(size, dtype=torch.int64, device=logits.device)
        out = ChainVerdict(num_accepted, num_accepted.new_empty((size, width + 1)))
    for name, tensor, wanted_shape in zip(
        ChainVerdict._fields, out, ((size,), (size, width + 1)), strict=True
    ):
        check_tensor(f"out.{name}", tensor, wanted_shape, (torch.int64,), logits)
    return out
