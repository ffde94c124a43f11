"""Decisions on both sides of every threshold, against a walk written out in words."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from lawcheck.exact import post_order
from lawcheck.world import CHAINS, TREES, Drafts, World, ancestors, on_trial

from specdec.interfaces import DraftSampling
from specdec.interfaces.row_block import node_depths
from specdec.samplers.decision import decide
from specdec.samplers.links import NO_NODE, Links
from specdec.samplers.scheme import Rule, Scheme
from specdec_kernels.cpu.verification.stops import compiled_stops

SHAPES = [*CHAINS, *TREES]


def walk(passes: tuple[bool, ...], parents: list[int]) -> int:
    node = -1
    while True:
        children = [j for j, parent in enumerate(parents) if parent == node and passes[j]]
        if not children:
            return node
        node = children[0]


def first(passes: tuple[bool, ...], parents: list[int]) -> int:
    return next((node for node in post_order(parents) if passes[node]), -1)


def longest(passes: tuple[bool, ...], parents: list[int]) -> int:
    paths = [ancestors(parents, node) for node in range(len(parents))]
    standing = [path for path in paths if all(passes[node] for node in path)]
    return max(standing, key=len)[-1] if standing else -1


@pytest.mark.parametrize(
    ("rule", "expected"), [(Rule.FIRST_CHILD, walk), (Rule.POST_ORDER, first), (Rule.DEEPEST, longest)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("parents", SHAPES, ids=str)
def test_both_sides_of_every_threshold(rule, expected, dtype, is_compiled, parents) -> None:
    """A uniform just below passes, one equal does not; all patterns, beside a row that has fewer nodes."""
    width = len(parents)
    patterns = list(itertools.product([False, True], repeat=width))
    count = len(patterns)
    world = World.random(1, 2, width + 1)
    tokens = np.zeros((2 * count, width), int)
    tokens[count:, -1] = -1
    trial = on_trial(
        world, Drafts(tokens, parents, np.ones(2 * count)), DraftSampling.DETERMINISTIC, is_chain=parents in CHAINS
    )  # fmt: skip
    thresholds = torch.rand(2 * count, width, generator=torch.Generator().manual_seed(0), dtype=dtype)
    thresholds = torch.where(trial.is_node, thresholds, 0.0)
    at = thresholds.double()
    below = torch.nextafter(at, torch.zeros_like(at))
    uniforms = torch.where(torch.tensor(patterns * 2), below, at)
    if is_compiled:
        given = uniforms, thresholds.double(), trial.parents, trial.num_nodes
        stop = compiled_stops(*(each.numpy() for each in given), rule.value).tolist()
    else:
        stop = decide(Scheme(thresholds, rule, trial.target_after), uniforms, trial).tolist()
    assert stop[:count] == [expected(pattern, parents) for pattern in patterns]
    assert stop[count:] == [expected(pattern[:-1], parents[:-1]) for pattern in patterns]


def test_certain_and_impossible_nodes() -> None:
    world = World.random(1, 2, 3)
    drafts = Drafts(np.zeros((2, 2), int), [-1, 0], np.ones(2))
    trial = on_trial(world, drafts, DraftSampling.DETERMINISTIC, is_chain=True)
    lowest, highest = 0.5 / 2**32, 1 - 0.5 / 2**32
    for rule in Rule:
        for threshold, uniform, stop in ((1.0, highest, 1), (0.0, lowest, -1)):
            law = Scheme(torch.full((2, 2), threshold), rule, trial.target_after)
            uniforms = torch.full((2, 2), uniform, dtype=torch.float64)
            assert decide(law, uniforms, trial).tolist() == [stop, stop]


@pytest.mark.parametrize("parents", SHAPES, ids=str)
def test_post_order_and_depth_of_links(parents) -> None:
    cut = [*parents[:-1], NO_NODE]
    links = Links.of([parents, parents[:-1]], len(parents), torch.device("cpu"))
    assert links.parents.tolist() == [parents, cut]
    assert links.max_depth == max(node_depths(len(parents), parents))
    for row, shape in zip(links.post_order.tolist(), (parents, parents[:-1]), strict=True):
        assert [node for _, node in sorted(zip(row, range(len(shape)), strict=False))] == post_order(shape)
    assert links.post_order[1, -1] == len(parents)
