"""Several steps in a row through `verify` and its own noise, with a proposer that learns from what was discarded.

Draws must be keyed by the step and the node. Keys of position alone repeat a draw that an earlier step has looked at, which
biases the output; so does a draw that is used twice. Statistics: chi-square of all texts of three tokens.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from lawcheck.one_step import first_tokens
from lawcheck.steps import Chatter, Draw, drafting
from speccheck.recorder import use_backends

from specdec.interfaces import SamplerConfig, VerifyBatch
from specdec.interfaces.row_block import node_depths
from specdec.noise import Stream, node_word
from specdec.samplers import verifier
from specdec.samplers.block import BlockSampler
from specdec.samplers.probabilistic import ProbabilisticSampler
from specdec_kernels.cpu.rows.noise import first_uniforms, multinomial_rows
from specdec_testing.support.chi_square import excess

COUNT, LENGTH = 20000, 3
SAMPLERS = {"probabilistic": ProbabilisticSampler, "block": BlockSampler}
PAIR, CHAIN, TREE = [-1, 0], [-1, 0, 1], [-1, -1, 0]


def measured(sampler: str, parents: list[int], draw: Draw = drafting, count: int = COUNT) -> float:
    chatter = Chatter.random(1, 3, parents)
    return excess(chatter.run(SAMPLERS[sampler](SamplerConfig()), count, LENGTH, draw), chatter.exact(LENGTH))


@pytest.mark.parametrize("parents", [PAIR, CHAIN, TREE], ids=str)
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.sampled(2, slow=2)
def test_texts_of_several_steps_follow_the_law(sampler, parents) -> None:
    assert measured(sampler, parents) < 1


@pytest.mark.full
@pytest.mark.parametrize("parents", [PAIR, CHAIN, TREE, [-1, 0, 0, -1, 3]], ids=str)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_many_texts_of_several_steps_follow_the_law(sampler, parents) -> None:
    for seed in range(4):
        chatter = Chatter.random(seed, 3, parents)
        assert (
            excess(chatter.run(SAMPLERS[sampler](SamplerConfig()), 10 * COUNT, LENGTH), chatter.exact(LENGTH))
            < 1
        )


def drafting_by_position(
    weights: np.ndarray, seeds: np.ndarray, num_tokens: np.ndarray, node: int, depth: int
) -> np.ndarray:
    return multinomial_rows(
        weights, seeds, num_tokens + depth - 1, 0 * seeds, 0 * seeds + node_word(Stream.DRAFT)
    )


def drafting_with_draws_of_acceptance(
    weights: np.ndarray, seeds: np.ndarray, num_tokens: np.ndarray, node: int, depth: int
) -> np.ndarray:
    return multinomial_rows(weights, seeds, num_tokens, 0 * seeds, 0 * seeds + node_word(Stream.ACCEPT, node))


def keys(batch: VerifyBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.array(batch.seeds), np.array(batch.num_tokens), np.array(batch.sample_indices)


def accepting_by_position(parents: list[int]):
    """Make uniforms keyed by position and sibling."""

    def uniforms(batch: VerifyBatch, width: int, device: torch.device) -> torch.Tensor:
        seeds, positions, samples = keys(batch)
        columns = []
        for node, depth in enumerate(node_depths(width, parents)):
            rank = parents[:node].count(parents[node])
            word = np.array([node_word(Stream.ACCEPT, rank)])
            columns.append(first_uniforms(seeds, positions + depth - 1, samples, word))
        return torch.from_numpy(np.concatenate(columns, 1))

    return uniforms


def drawing_by_position(
    weights: torch.Tensor, stop: torch.Tensor, batch: VerifyBatch
) -> tuple[list[int], list[int]]:
    """Draw the last token with a key of its position in a chain."""
    seeds, positions, samples = keys(batch)
    words = 0 * seeds + node_word(Stream.RESIDUAL)
    tokens = multinomial_rows(weights.numpy(), seeds, positions + stop.numpy() + 1, samples, words)
    return stop.tolist(), tokens.tolist()


@pytest.mark.parametrize(("sampler", "parents"), [("probabilistic", TREE), ("block", PAIR)])
def test_drafting_keyed_by_position_alone_is_found(sampler, parents) -> None:
    assert measured(sampler, parents, drafting_by_position) > 1.25


@pytest.fixture
def torch_alone(monkeypatch) -> None:
    """Verification by the samplers themselves, whose draws the tests replace."""
    use_backends(monkeypatch)


@pytest.mark.usefixtures("torch_alone")
def test_acceptance_keyed_by_position_alone_is_found(monkeypatch) -> None:
    """Block verification looks at draws behind the accepted path, which the next step would see again."""
    monkeypatch.setattr(verifier, "accept_uniforms", accepting_by_position(PAIR))
    assert measured("block", PAIR) > 1.25


@pytest.mark.usefixtures("torch_alone")
def test_everything_keyed_by_position_alone_is_found(monkeypatch) -> None:
    monkeypatch.setattr(verifier, "accept_uniforms", accepting_by_position(PAIR))
    monkeypatch.setattr(verifier, "draw_tokens", drawing_by_position)
    assert measured("block", PAIR, drafting_by_position) > 2


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_drafting_with_the_draws_of_acceptance_is_found(sampler) -> None:
    assert measured(sampler, CHAIN, drafting_with_draws_of_acceptance) > 2


P, Q = np.array([0.1, 0.35, 0.25, 0.3]), np.array([0.4, 0.3, 0.2, 0.1])
"""After A is rejected the chances of the second sibling lie between 0 and 1."""


@pytest.mark.usefixtures("torch_alone")
@pytest.mark.parametrize(("sampler", "q"), [("probabilistic", None), ("probabilistic", Q), ("block", Q)])
@pytest.mark.sampled(1, slow=1)
def test_siblings_that_share_a_uniform_are_found(monkeypatch, sampler, q) -> None:
    def run() -> float:
        seen = first_tokens(
            SAMPLERS[sampler](SamplerConfig()), P, q, [-1, -1], 30000, tokens=[0, 1], chunk=10000
        )
        return excess(seen, P)

    assert run() < 1
    fresh = verifier.accept_uniforms
    monkeypatch.setattr(verifier, "accept_uniforms", lambda *args: fresh(*args)[:, [0, 0]])
    assert run() > 1.25
