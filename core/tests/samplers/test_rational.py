"""Block verification and rejection in fractions, written from the papers, beside the implementations that ship.

The published example (arXiv 2403.10444): two ids, q(A) = 2/3 and p(A) = 1/3 at every position.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from lawcheck.exact import outcome
from lawcheck.world import World, all_drafts, on_trial

from specdec.interfaces import DraftSampling
from specdec.samplers.block import block_scheme
from specdec.samplers.rejection import rejection_scheme
from specdec_kernels.cpu.verification.schemes import compiled_scheme

Probs = Sequence[Fraction]
P: Probs = (Fraction(1, 3), Fraction(2, 3))
Q: Probs = (Fraction(2, 3), Fraction(1, 3))
PUBLISHED = {2: ("11/9", "10/9"), 3: ("5/3", "38/27"), 4: ("166/81", "130/81")}
"""For each k the expected accepted tokens of block verification and of rejection."""


def block_thresholds(draft: Sequence[int], p: Probs, q: Probs) -> list[Fraction]:
    """h_1 .. h_k of one draft."""
    weight, thresholds = Fraction(1), []
    for place, token in enumerate(draft):
        weight = min(Fraction(1), weight * p[token] / q[token])
        mass = sum((max(weight * a - b, Fraction(0)) for a, b in zip(p, q, strict=True)), Fraction(0))
        is_last = place == len(draft) - 1
        thresholds.append(weight if is_last else mass / (mass + 1 - weight) if mass else Fraction(0))
    return thresholds


def rejection_thresholds(draft: Sequence[int], p: Probs, q: Probs) -> list[Fraction]:
    return [min(Fraction(1), p[token] / q[token]) for token in draft]


def block_accepted(draft: Sequence[int], p: Probs, q: Probs) -> Fraction:
    total, left = Fraction(0), Fraction(1)
    for place, threshold in reversed(list(enumerate(block_thresholds(draft, p, q)))):
        total += left * threshold * (place + 1)
        left *= 1 - threshold
    return total


def rejection_accepted(draft: Sequence[int], p: Probs, q: Probs) -> Fraction:
    total, left = Fraction(0), Fraction(1)
    for threshold in rejection_thresholds(draft, p, q):
        left *= threshold
        total += left
    return total


def chance(draft: Sequence[int], q: Probs) -> Fraction:
    product = Fraction(1)
    for token in draft:
        product *= q[token]
    return product


def constant_world(length: int) -> World:
    p, q = (np.array([float(x) for x in law]) for law in (P, Q))
    return World(*([np.broadcast_to(law, (2,) * (n + 1)) for n in range(length)] for law in (p, q)))


@pytest.mark.parametrize("k", PUBLISHED)
def test_the_twin_has_the_published_numbers(k) -> None:
    drafts = list(itertools.product(range(2), repeat=k))
    for accepted, expected in zip((block_accepted, rejection_accepted), PUBLISHED[k], strict=True):
        assert sum(chance(d, Q) * accepted(d, P, Q) for d in drafts) == Fraction(expected)


@pytest.mark.parametrize("k", PUBLISHED)
@pytest.mark.parametrize(
    ("law_of", "thresholds_of", "place"),
    [(block_scheme, block_thresholds, 0), (rejection_scheme, rejection_thresholds, 1)],
)
def test_the_laws_that_ship_agree_with_the_twin(k, law_of, thresholds_of, place) -> None:
    world = constant_world(k + 1)
    parents = list(range(-1, k - 1))
    drafts = all_drafts(world, parents, DraftSampling.IID)
    for is_chain in (True, False):
        trial = on_trial(world, drafts, DraftSampling.IID, is_chain=is_chain)
        law, compiled = law_of(trial), compiled_scheme(trial, is_block=law_of is block_scheme)
        assert (law.thresholds - compiled.thresholds).abs().max() < 1e-12
        for tokens, thresholds in zip(drafts.tokens.tolist(), law.thresholds.tolist(), strict=True):
            twin = [float(threshold) for threshold in thresholds_of(tokens, P, Q)]
            assert thresholds == pytest.approx(twin, rel=0, abs=1e-12)
        accepted = outcome(law, world, drafts, k + 1).mean_accepted(drafts)
        assert accepted == pytest.approx(float(Fraction(PUBLISHED[k][place])), rel=0, abs=1e-12)


def random_law(rng: np.random.Generator, size: int) -> list[Fraction]:
    weights = [int(w) for w in rng.integers(0, 7, size)]
    weights[rng.integers(size)] += 1
    return [Fraction(w, sum(weights)) for w in weights]


def test_agreement_on_random_laws() -> None:
    rng = np.random.default_rng(2)
    for _ in range(30):
        size, k = int(rng.integers(2, 5)), int(rng.integers(1, 4))
        p, q = random_law(rng, size), random_law(rng, size)
        floats = (
            [np.broadcast_to([float(x) for x in law], (size,) * (n + 1)) for n in range(k + 1)]
            for law in (p, q)
        )
        world = World(*floats)
        drafts = all_drafts(world, list(range(-1, k - 1)), DraftSampling.IID)
        trial = on_trial(world, drafts, DraftSampling.IID, is_chain=True)
        for law_of, thresholds_of in (
            (block_scheme, block_thresholds),
            (rejection_scheme, rejection_thresholds),
        ):
            for tokens, got in zip(drafts.tokens.tolist(), law_of(trial).thresholds.tolist(), strict=True):
                assert got == pytest.approx([float(t) for t in thresholds_of(tokens, p, q)], rel=0, abs=1e-12)


@pytest.mark.parametrize("parents", [[-1, 0], [-1, 0, 1], [-1, -1, 0, 1], [-1, 0, 0, -1]], ids=str)
def test_block_verification_never_accepts_fewer(parents) -> None:
    gains = []
    for seed in range(12):
        world = World.random(seed, 2 + seed % 2, 4)
        drafts = all_drafts(world, parents, DraftSampling.IID)
        trial = on_trial(
            world, drafts, DraftSampling.IID, is_chain=-1 not in parents[1:] and parents[-1] != 0
        )
        block = outcome(block_scheme(trial), world, drafts, 4).mean_accepted(drafts)
        plain = outcome(rejection_scheme(trial), world, drafts, 4).mean_accepted(drafts)
        gains.append(block - plain)
    assert min(gains) > -1e-12
    assert max(gains) > 0.01
