"""Rejection sampling: accepts a node with probability min(1, r / q); a rejection leaves the residual r - q.

Leviathan et al., arXiv 2211.17192, and Chen et al., arXiv 2302.01318, for chains; recursive rejection over siblings as in
SpecInfer, arXiv 2305.09781, for trees.
"""

from __future__ import annotations

import torch

from specdec.samplers.padded_drafts import PaddedDrafts
from specdec.samplers.scheme import Rule, Scheme
from specdec.samplers.sibling_walk import walk_siblings


def rejection_scheme(padded: PaddedDrafts) -> Scheme:
    """Return the scheme: thresholds are the acceptance probabilities of nodes when they are tried.

    A node is tried after its parent is accepted and its earlier siblings are rejected.
    """
    if padded.draft_probs is None:
        return point_mass_scheme(padded)
    if padded.links is not None:
        walk = walk_siblings(padded, is_block=False)
        return Scheme(walk.acceptance, Rule.FIRST_CHILD, walk.residual)
    thresholds = ratios(padded).clamp_max(1.0)
    return Scheme(thresholds, Rule.FIRST_CHILD, lambda stop: chain_residual(padded, stop, None))


def ratios(padded: PaddedDrafts) -> torch.Tensor:
    """Return `[B, N]`: p / q of every drafted id of a batch that carries q; 0 where q is 0."""
    assert padded.draft_probs is not None
    target = padded.target_of_nodes()
    q = padded.draft_probs.of_nodes(padded.parent_places, padded.token_ids, padded.columns)
    return (target / q).masked_fill(q <= 0, 0.0)


def chain_residual(padded: PaddedDrafts, stop: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
    """Return `[B, V]`: `max(weight * p - q, 0)` after node `stop[i]` of a chain that carries q; p after its last node.

    If no mass is left (p = q, and rounding caused the rejection), the result is p.

    Args:
        padded: chains with q.
        stop: `[B]` last accepted nodes.
        weight: `[B]`, or None for 1.
    """
    assert padded.draft_probs is not None
    place = stop + 1
    target = padded.target_after(stop)
    q = padded.draft_probs.row(place)
    is_drawn = padded.draft_probs.is_drawn
    is_end = place >= padded.num_nodes
    rest = target if weight is None else target * weight[:, None]
    without_q = is_end if is_drawn is None else is_end | ~is_drawn
    rest = (rest - q.masked_fill(without_q[:, None], 0.0)).clamp_min_(0.0)
    if is_drawn is not None:
        drafted = padded.columns.gather(1, place.clamp_max(padded.width - 1)[:, None])
        rest = taken_out(rest, drafted.masked_fill((is_end | is_drawn)[:, None], padded.vocab_size))
    return torch.where(rest.sum(-1, keepdim=True) > 0, rest, target)


def point_mass_scheme(padded: PaddedDrafts) -> Scheme:
    """Return the scheme for drafts without q: each node is a point mass, so q is 1 at its id.

    A node is then accepted with probability r, which is p without its earlier siblings. The probability that
    one of the siblings is accepted is the sum of their p.
    """
    target = padded.target_of_nodes()
    thresholds = target
    if padded.links is not None:
        thresholds = _without_earlier_siblings(target, padded.parents, padded.columns)

    def emission(stop: torch.Tensor) -> torch.Tensor:
        after = padded.target_after(stop)
        is_child = padded.parents == stop[:, None]
        rest = taken_out(after, padded.columns.masked_fill(~is_child, padded.vocab_size))
        return torch.where(rest.sum(-1, keepdim=True) > 0, rest, after)

    return Scheme(thresholds, Rule.FIRST_CHILD, emission)


def _without_earlier_siblings(
    target: torch.Tensor, parents: torch.Tensor, columns: torch.Tensor
) -> torch.Tensor:
    """Return `[B, N]`: p of each id over the mass that earlier siblings leave; 0 for repeated ids."""
    is_sibling = parents[:, :, None] == parents[:, None, :]
    is_earlier = is_sibling & torch.ones_like(is_sibling[0]).tril(-1)
    is_repeated = (is_earlier & (columns[:, :, None] == columns[:, None, :])).any(-1)
    fresh = target.masked_fill(is_repeated, 0.0)
    left = 1.0 - (is_earlier * fresh[:, None, :]).sum(-1)
    return torch.where(left > 0, fresh / left, 0.0).clamp_max(1.0)


def taken_out(weights: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Return weights `[B, V]` set to 0 at ids `[B, M]`; id V means none."""
    keep = weights.new_ones(weights.shape[0], weights.shape[1] + 1)
    return weights * keep.scatter_(1, columns, 0.0)[:, :-1]
