"""Compares uniforms with thresholds to find where the accepted path stops."""

from __future__ import annotations

import torch

from specdec.samplers.links import Links
from specdec.samplers.padded_drafts import PaddedDrafts
from specdec.samplers.scheme import Rule, Scheme


def decide(scheme: Scheme, uniforms: torch.Tensor, padded: PaddedDrafts) -> torch.Tensor:
    """Return the last accepted node of each draft, `[B]`, -1 for none.

    Args:
        scheme: thresholds and rule.
        uniforms: `[B, N]` float64.
        padded: the drafts.
    """
    passes = uniforms < scheme.thresholds
    if scheme.rule is Rule.POST_ORDER:
        return first_in_post_order(passes, padded.links)
    # In a chain every child is a first child, so `DEEPEST` and `FIRST_CHILD` are the same.
    if scheme.rule is Rule.DEEPEST and padded.links is not None:
        return deepest(passes, padded.links)
    return first_children(passes, padded.links)


def first_children(passes: torch.Tensor, links: Links | None) -> torch.Tensor:
    """Return `[B]` by `Rule.FIRST_CHILD`, from passing nodes `[B, N]`."""
    if links is None:
        return passes.long().cumprod(-1).sum(-1) - 1
    stop = links.parents.new_full((len(passes),), -1)
    for _ in range(links.max_depth):
        is_next = passes & (links.parents == stop[:, None])
        stop = torch.where(is_next.any(-1), is_next.byte().argmax(-1), stop)
    return stop


def first_in_post_order(passes: torch.Tensor, links: Links | None) -> torch.Tensor:
    """Return `[B]` by `Rule.POST_ORDER`, from passing nodes `[B, N]`."""
    width = passes.shape[1]
    if links is None:
        return torch.where(passes, torch.arange(width, device=passes.device), -1).amax(-1)
    first = torch.where(passes, links.post_order, width).min(-1)
    return torch.where(first.values < width, first.indices, -1)


def deepest(passes: torch.Tensor, links: Links) -> torch.Tensor:
    """Return `[B]` by `Rule.DEEPEST`, from passing nodes `[B, N]`."""
    places = (links.parents + 1).clamp_min(0)
    depths = torch.zeros_like(links.parents)
    front = passes & (links.parents == -1)
    for depth in range(1, links.max_depth + 1):
        depths = torch.where(front, depth, depths)
        padded = torch.cat((front.new_zeros(len(front), 1), front), 1)
        front = passes & padded.gather(1, places)
    best = depths.argmax(-1)
    return torch.where(depths.gather(1, best[:, None])[:, 0] > 0, best, -1)
