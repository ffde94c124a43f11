"""The noise handed to proposers: exact q, a stream of its own, and the noise of `strict` where it is asked for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specdec import SamplingParams
from specdec.engine.sequence import Sequence
from specdec.engine.speculation.plugin_view import EngineDraws
from specdec.noise import Stream, exponentials, node_word

VOCAB = 11
SEEDS = [5, -3, 2**62]


def sequences() -> list[Sequence]:
    return [
        Sequence(
            f"s{i}",
            np.arange(4 + i, dtype=np.int32),
            SamplingParams(),
            seed=seed,
            sample_index=i,
            max_num_tokens=40,
        )
        for i, seed in enumerate(SEEDS)
    ]


def winner(logits: torch.Tensor, seed: int, position: int, sample: int, word: int) -> int:
    noise = exponentials(*(torch.tensor([v]) for v in (seed, position, sample, word)), logits.shape[-1])[0]
    return int((noise / torch.softmax(logits, -1).double()).argmin())


@pytest.mark.parametrize("depth", [1, 2, 7])
def test_coupled_draws_are_those_of_strict_at_that_position(depth) -> None:
    logits = torch.randn(2, VOCAB, generator=torch.Generator().manual_seed(depth))
    got = EngineDraws(sequences()).coupled(logits, [2, 0], depth)
    assert got.dtype == torch.int64
    assert got.tolist() == [
        winner(logits[0], SEEDS[2], 6 + depth - 1, 2, 0),
        winner(logits[1], SEEDS[0], 4 + depth - 1, 0, 0),
    ]


@pytest.mark.parametrize("depth", [1, 2, 7])
def test_the_noise_itself_is_what_coupled_draws_are_made_with(depth) -> None:
    logits = torch.randn(2, VOCAB, generator=torch.Generator().manual_seed(depth))
    draws = EngineDraws(sequences())
    noise = draws.coupled_noise([2, 0], depth, VOCAB)
    assert noise.shape == (2, VOCAB)
    assert torch.equal((logits + noise).argmax(-1), draws.coupled(logits, [2, 0], depth))
    keys = (torch.tensor([v]) for v in (SEEDS[2], 6 + depth - 1, 2, node_word(Stream.TARGET)))
    torch.testing.assert_close(noise[0], -exponentials(*keys, VOCAB)[0].log().float(), rtol=1e-6, atol=1e-6)
    assert torch.equal(draws.coupled_noise([0], depth, 5)[0], noise[1, :5])


@pytest.mark.parametrize("node", [0, 1, 30])
def test_sampled_draws_have_a_stream_of_their_own_and_an_honest_q(node) -> None:
    logits = torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(node))
    logits[:, 4] = -torch.inf
    tokens, q = EngineDraws(sequences()).sample(logits, [0, 1, 2], node)
    assert torch.allclose(q, torch.softmax(logits, -1))
    assert q[:, 4].tolist() == [0.0] * 3
    word = node_word(Stream.DRAFT, node)
    assert tokens.tolist() == [winner(logits[i], SEEDS[i], 4 + i, i, word) for i in range(3)]
    assert 4 not in tokens.tolist()


def test_the_seed_of_a_draw_does_not_depend_on_the_batch() -> None:
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(9))
    every = sequences()
    alone = EngineDraws(every[1:2]).sample(logits, [0], 3)[0]
    together = EngineDraws(every[::-1]).sample(logits, [1], 3)[0]
    assert alone.tolist() == together.tolist()
