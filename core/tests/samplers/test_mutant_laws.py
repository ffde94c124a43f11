"""What must not pass for lossless: the exact check finds each of these, and passes what differs only in being right.

Mutants are of two kinds: verification schemes that are wrong, and proposers that report a q their tokens do not follow.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from lawcheck.exact import Decision, bias, by_children, in_order, outcome
from lawcheck.world import CHAINS, Drafts, World, all_drafts, ancestors, on_trial

from specdec.interfaces import DraftSampling
from specdec.samplers.block import block_scheme
from specdec.samplers.padded_drafts import PaddedDrafts
from specdec.samplers.rejection import rejection_scheme
from specdec.samplers.scheme import Scheme
from specdec.samplers.sibling_walk import walk_siblings

IID, WITHOUT = DraftSampling.IID, DraftSampling.WITHOUT_REPLACEMENT
EXACT, BIASED = 1e-12, 1e-3
LENGTH = 4
LAWS: dict[str, Callable[[PaddedDrafts], Scheme]] = {"probabilistic": rejection_scheme, "block": block_scheme}


def worst(
    make_law, world: World, drafts: Drafts, sampling: DraftSampling, decision: Decision | None = None
) -> float:
    is_chain = drafts.parents in CHAINS
    law = make_law(on_trial(world, drafts, sampling, is_chain=is_chain))
    return bias(outcome(law, world, drafts, LENGTH, decision), world, drafts, LENGTH)


def swapped_residual(trial: PaddedDrafts) -> Scheme:
    """Draws from max(q - p, 0)."""

    def emission(stop: torch.Tensor) -> torch.Tensor:
        target, law = trial.target_after(stop), trial.draft_probs.row(stop + 1)
        is_end = (stop + 1 == trial.num_nodes)[:, None]
        return torch.where(is_end, target, (law - target).clamp_min(0))

    return replace(rejection_scheme(trial), emission=emission)


def no_residual(trial: PaddedDrafts) -> Scheme:
    return replace(rejection_scheme(trial), emission=trial.target_after)


def inverted_ratio(trial: PaddedDrafts) -> Scheme:
    law = rejection_scheme(trial)
    q = trial.draft_probs.of_nodes(trial.parent_places, trial.token_ids, trial.columns)
    return replace(law, thresholds=(q / trial.target_of_nodes()).clamp_max(1.0))


def weights_left_as_they_were(trial: PaddedDrafts) -> Scheme:
    """A parent is judged by the weight it had before its children failed."""
    return replace(block_scheme(trial), thresholds=walk_siblings(trial, is_block=True).acceptance)


def deepest_leaf_first(thresholds: np.ndarray, parents: list[int]) -> np.ndarray:
    depths = [len(ancestors(parents, node)) for node in range(len(parents))]
    return in_order(sorted(range(len(parents)), key=lambda node: -depths[node]), thresholds)


UNEVEN = [-1, -1, 0, 1, 3]
"""The second branch is deeper than the first."""
WRONG_LAWS = {
    "swapped residual": (swapped_residual, None, [-1, 0]),
    "no residual": (no_residual, None, [-1, 0]),
    "inverted ratio": (inverted_ratio, None, [-1, 0]),
    "rejection of a block law's thresholds": (block_scheme, by_children, [-1, 0, 1]),
    "weights left as they were": (weights_left_as_they_were, None, UNEVEN),
    "deepest leaf first": (block_scheme, deepest_leaf_first, UNEVEN),
}


@pytest.mark.parametrize("name", WRONG_LAWS)
def test_wrong_laws_are_found(name) -> None:
    make_law, decision, parents = WRONG_LAWS[name]
    world = World.random(31, 3, LENGTH)
    drafts = all_drafts(world, parents, IID)
    assert worst(make_law, world, drafts, IID, decision) > BIASED
    for right in LAWS.values():
        assert worst(right, world, drafts, IID) < EXACT


Make = Callable[[World], Drafts]


def collected(parents: list[int], found: dict[tuple[int, ...], float]) -> Drafts:
    width = len(parents)
    rows = [[*tokens, *[-1] * (width - len(tokens))] for tokens in found]
    return Drafts(np.array(rows).reshape(len(rows), width), parents, np.array(list(found.values())))


def from_pairs(
    world: World, choose: Callable[[int, int, np.ndarray], tuple[int, ...]], parents: list[int]
) -> Drafts:
    """Draw two tokens from q after the last committed one, and make a draft of them."""
    q, found = world.q[0], defaultdict(float)
    for x, y in itertools.product(range(world.vocab_size), repeat=2):
        found[choose(x, y, q)] += q[x] * q[y]
    return collected(parents, found)


def reordered_by_q(world: World) -> Drafts:
    return from_pairs(world, lambda x, y, q: (x, y) if q[x] >= q[y] else (y, x), [-1, -1])


def best_of_two(world: World) -> Drafts:
    return from_pairs(world, lambda x, y, q: (x if q[x] >= q[y] else y,), [-1])


def merged(world: World, count: int = 3) -> Drafts:
    """Draw several tokens independently and keep each id once, in the order of its first draw."""
    q, found = world.q[0], defaultdict(float)
    for tokens in itertools.product(range(world.vocab_size), repeat=count):
        found[tuple(dict.fromkeys(tokens))] += float(np.prod(q[list(tokens)]))
    return collected([-1] * count, found)


def dropped(world: World, is_kept: Callable[[int], bool]) -> Drafts:
    found = defaultdict(float)
    for token in range(world.vocab_size):
        found[(token,) if is_kept(token) else ()] += float(world.q[0][token])
    return collected([-1], found)


def dropped_below_a_threshold(world: World) -> Drafts:
    return dropped(world, lambda token: world.q[0][token] >= 0.2)


def dropped_where_forbidden(world: World) -> Drafts:
    return dropped(world, lambda token: world.p[0][token] > 0)


def stops_behind_its_token(world: World) -> Drafts:
    """Draws a second token only where the first was likely; it keeps the first whatever it was."""
    q, found = world.q, defaultdict(float)
    for x in range(world.vocab_size):
        if q[0][x] < 0.2:
            found[(x,)] += float(q[0][x])
        else:
            for y in range(world.vocab_size):
                found[x, y] += float(q[0][x] * q[1][x, y])
    return collected([-1, 0], found)


def top_two(world: World) -> Drafts:
    best = np.argsort(-world.q[0])[:2]
    return collected([-1, -1], {tuple(best.tolist()): 1.0})


def drawn_by_another_law(world: World) -> Drafts:
    hot = World(world.p, [np.sqrt(q) / np.sqrt(q).sum(-1, keepdims=True) for q in world.q])
    return all_drafts(hot, [-1, 0], IID)


def honest_pairs(world: World) -> Drafts:
    return from_pairs(world, lambda x, y, q: (x, y), [-1, -1])


LIES: dict[str, tuple[Make, DraftSampling, Make, DraftSampling]] = {
    "siblings reordered by q": (reordered_by_q, IID, honest_pairs, IID),
    "best of two": (best_of_two, IID, lambda world: all_drafts(world, [-1], IID), IID),
    "a drawn token dropped below a threshold": (dropped_below_a_threshold, IID, stops_behind_its_token, IID),
    "a drawn token dropped at a forbidden id": (
        dropped_where_forbidden, IID, lambda world: all_drafts(world, [-1], IID), IID,
    ),
    "top two reported with q": (top_two, IID, honest_pairs, IID),
    "top two reported without replacement": (
        top_two, WITHOUT, lambda world: all_drafts(world, [-1, -1], WITHOUT), WITHOUT,
    ),
    "merged duplicates called iid": (merged, IID, merged, WITHOUT),
    "wrong q": (drawn_by_another_law, IID, lambda world: all_drafts(world, [-1, 0], IID), IID),
}  # fmt: skip
"""Proposers with a wrong q, and beside each one that does the same with exact q."""


@pytest.mark.parametrize("verifier", LAWS)
@pytest.mark.parametrize("name", LIES)
def test_false_drafts_are_found(name, verifier) -> None:
    lie, called, honest, rightly = LIES[name]
    make_law = LAWS[verifier]
    # Some p and q have so little in common that a wrong q does no harm, hence several.
    worlds = [
        World.random(seed, 4, LENGTH).without(p=(2,) if "forbidden" in name else ()) for seed in range(4)
    ]
    assert max(worst(make_law, world, lie(world), called) for world in worlds) > BIASED
    assert max(worst(make_law, world, honest(world), rightly) for world in worlds) < EXACT
