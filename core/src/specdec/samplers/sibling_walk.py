"""The recursion over siblings that rejection and block verification share, for trees with q.

A node has residual r (initially p), weight P and children x_1 .. x_m, drawn from q. Child j is accepted with
probability min(1, P r(x_j) / q(x_j)). If it fails, r becomes max(P r - q, 0) normalised and, if siblings were
drawn without replacement, x_j is removed from q. Rejection sampling has P = 1 everywhere. In block
verification a child's acceptance probability is its own P, and its failure sets its parent's P to s / (s + 1
- P), where s is the mass of max(P r - q, 0).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from specdec.samplers.padded_drafts import PaddedDrafts


@dataclass(frozen=True)
class SiblingWalk:
    """The state of every node after all of its children have failed."""

    padded: PaddedDrafts
    acceptance: torch.Tensor
    """`[B, N]`: acceptance probability of each node when it is tried."""
    weights: torch.Tensor
    """`[B, N + 1]`: P after the last committed token and after each node; 1 throughout for rejection."""
    residuals: torch.Tensor
    """`[B, N + 2, V + 1]`: r, in the order of `weights`; the last row and the last column are scratch."""

    def residual(self, stop: torch.Tensor) -> torch.Tensor:
        """Return `[B, V]`: r after node `stop[i]`, or p where no mass is left."""
        rest = self.residuals[self.padded.batch_index, stop + 1, :-1]
        return torch.where(rest.sum(-1, keepdim=True) > 0, rest, self.padded.target_after(stop))


def walk_siblings(padded: PaddedDrafts, *, is_block: bool) -> SiblingWalk:
    """Try every node once, parents and earlier siblings first; otherwise the order does not matter."""
    assert padded.draft_probs is not None
    size, width, scratch = padded.size, padded.width, padded.width + 1
    batch = padded.batch_index
    residuals = padded.probs.new_zeros(size, width + 2, padded.vocab_size + 1)
    residuals[:, :scratch, :-1] = padded.probs[padded.rows]
    weights = padded.probs.new_ones(size, width + 2)
    acceptance = padded.probs.new_zeros(size, width)
    q_rows = padded.draft_probs.wide_rows(width + 1)
    for node in range(width):
        place, column = padded.parent_places[:, node], padded.columns[:, node]
        q = _q_of_node(padded, q_rows, node)
        weight = weights[batch, place]
        target = residuals[batch, place] * weight[:, None]
        at_q = q[batch, column]
        accepted = torch.where(at_q > 0, target[batch, column] / at_q, 0.0).clamp_max(1.0)
        acceptance[:, node] = accepted
        rest = (target - q).clamp_min_(0.0)
        mass = rest.sum(-1)
        kept = torch.where(padded.is_node[:, node], place, scratch)
        residuals[batch, kept] = rest * torch.where(mass > 0, 1.0 / mass, 0.0)[:, None]
        if is_block:
            weights[batch, kept] = torch.where(mass > 0, mass / (mass + (1.0 - weight)), 0.0)
            weights[:, node + 1] = accepted
        if padded.draft_probs.is_taken_out:
            _take_out(padded, q_rows, node)
    return SiblingWalk(padded, acceptance, weights[:, :scratch], residuals)


def _q_of_node(padded: PaddedDrafts, q_rows: torch.Tensor, node: int) -> torch.Tensor:
    """Return `[B, V + 1]`: the distribution that a node was drawn from; a point mass for rows without q."""
    assert padded.draft_probs is not None
    q = q_rows[padded.batch_index, padded.parent_places[:, node]]
    if padded.draft_probs.is_taken_out:
        mass = q.sum(-1, keepdim=True)
        q = torch.where(mass > 0, q / mass, 0.0)
    is_drawn = padded.draft_probs.is_drawn
    if is_drawn is None:
        return q
    point_mass = torch.zeros_like(q).scatter_(1, padded.columns[:, node, None], 1.0)
    return torch.where(is_drawn[:, None], q, point_mass)


def _take_out(padded: PaddedDrafts, q_rows: torch.Tensor, node: int) -> None:
    """Remove a node's id from its parent's distribution for later siblings."""
    assert padded.draft_probs is not None
    place, column = padded.parent_places[:, node], padded.columns[:, node, None]
    q = q_rows[padded.batch_index, place]
    # Ids outside the vocabulary share one column, so the id's own part of it is looked up.
    outside = padded.draft_probs.outside(place, padded.token_ids[:, node])
    drawn = torch.where(column == padded.vocab_size, outside[:, None], q.gather(1, column))
    q_rows[padded.batch_index, place] = q.scatter_add(1, column, -drawn).clamp_min_(0.0)
