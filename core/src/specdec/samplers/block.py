"""The `block` sampler: the accepted path is decided as a whole, which in expectation accepts no fewer tokens than rejection.

Sun et al., arXiv 2403.10444, for chains. On trees it uses the same weights in the order of traversal
verification, arXiv 2505.12398, and updates a parent's weight after each child that fails. On chains the two
are equal.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from specdec.interfaces.capability import Capability
from specdec.samplers.padded_drafts import PaddedDrafts
from specdec.samplers.rejection import chain_residual, point_mass_scheme, ratios
from specdec.samplers.scheme import Rule, Scheme
from specdec.samplers.sibling_walk import walk_siblings
from specdec.samplers.verifier import Verifier


class BlockSampler(Verifier):
    """Decides drafted paths as a whole: in expectation it never accepts fewer tokens than `probabilistic`.

    Lossless under the same condition; drafts without q are verified exactly as `probabilistic` does.
    """

    name: ClassVar[str] = "block"
    is_lossless: ClassVar[bool] = True
    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.TREE, Capability.DRAFT_PROBS})

    def scheme(self, padded: PaddedDrafts) -> Scheme:
        """Return the scheme of block verification."""
        return block_scheme(padded)


def block_scheme(padded: PaddedDrafts) -> Scheme:
    """Return the scheme: thresholds are acceptance probabilities after all descendants have failed.

    Without q there is nothing to gain: the scheme is rejection sampling, which for point masses is plain
    sampling.
    """
    if padded.draft_probs is None:
        return point_mass_scheme(padded)
    if padded.links is not None:
        walk = walk_siblings(padded, is_block=True)
        return Scheme(walk.weights[:, 1:], Rule.POST_ORDER, walk.residual)
    weights = _chain_weights(ratios(padded))
    thresholds = _chain_thresholds(padded, weights[:, 1:])
    return Scheme(
        thresholds,
        Rule.POST_ORDER,
        lambda stop: chain_residual(padded, stop, weights.gather(1, stop[:, None] + 1)[:, 0]),
    )


def _chain_weights(ratios: torch.Tensor) -> torch.Tensor:
    """Return `[B, N + 1]`: P_i = min(1, P_{i-1} p_i / q_i), P_0 = 1."""
    weights = [ratios.new_ones(len(ratios))]
    # An infinite ratio is as good as a very large one, and keeps a P of 0.
    for ratio in ratios.clamp_max(torch.finfo(torch.float32).max).unbind(1):
        weights.append((weights[-1] * ratio).clamp_max_(1.0))
    return torch.stack(weights, 1)


def _chain_thresholds(padded: PaddedDrafts, weights: torch.Tensor) -> torch.Tensor:
    """Return `[B, N]`: h_i = s_i / (s_i + 1 - P_i) with s_i the mass of max(P_i p - q, 0) after node i; P at the last node."""
    assert padded.draft_probs is not None
    width = padded.width
    if width == 1:
        return weights
    before = weights[:, :-1]
    rest = padded.probs[padded.rows[:, 1:width]]
    rest = rest.mul_(before[:, :, None]).sub_(padded.draft_probs.rows(1, width)).clamp_min_(0.0)
    mass = rest.sum(-1, dtype=torch.float64).to(
        rest
    )  # the same in any batch: devices add in orders of their own
    is_drawn = padded.draft_probs.is_drawn
    if is_drawn is not None:
        # A point mass leaves all of p except its own id.
        point_mass = before * (1.0 - padded.target_of_nodes()[:, 1:])
        mass = torch.where(is_drawn[:, None], mass, point_mass)
    inner = (mass / (mass + (1.0 - before))).nan_to_num_(0.0)
    has_child = padded.is_node[:, 1:]
    return torch.cat((torch.where(has_child, inner, before), weights[:, -1:]), 1)
