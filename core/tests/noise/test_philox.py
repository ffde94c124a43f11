"""Philox against published vectors, the host's compiled form against torch, and the distributions of what is drawn."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from specdec.noise import Stream, exponentials, node_word, uniforms
from specdec.noise.philox import philox
from specdec_kernels.cpu.rows.noise import first_uniforms, multinomial, multinomial_rows
from specdec_kernels.cpu.verification.walk import walk

# Random123's kat_vectors for philox4x32 with 10 rounds: counter, key, output.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF, 0xFFFFFFFF), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def naive_philox(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ c3 ^ k1, p0 & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_known_answers(counter, key, expected) -> None:
    assert naive_philox(counter, key) == expected
    seed = torch.tensor([signed(key[0] | key[1] << 32)])
    words = philox(tuple(torch.tensor([c]) for c in counter), seed)
    assert tuple(int(word) for word in words) == expected


word32 = st.integers(0, 2**32 - 1)


@given(st.tuples(word32, word32, word32, word32), st.integers(0, 2**64 - 1))
@settings(max_examples=200, deadline=None)
def test_torch_form_equals_plain_integers(counter, key) -> None:
    words = philox(tuple(torch.tensor([c]) for c in counter), torch.tensor([signed(key)]))
    assert tuple(int(w) for w in words) == naive_philox(counter, (key & 0xFFFFFFFF, key >> 32))


@pytest.mark.parametrize("vocab", [1, 3, 4, 5, 127])
def test_uniforms_are_the_words_in_order(vocab) -> None:
    seed, position, sample, word = -5, 77, 3, node_word(Stream.DRAFT, 9)
    got = uniforms(*(torch.tensor([v]) for v in (seed, position, sample, word)), vocab)[0]
    key = (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF)
    expected = [
        (naive_philox((j // 4, position, sample, word), key)[j % 4] + 0.5) / 2**32 for j in range(vocab)
    ]
    assert got.tolist() == expected


def test_uniforms_lie_strictly_between_0_and_1() -> None:
    many = uniforms(torch.arange(64), torch.arange(64), torch.zeros(64).long(), torch.zeros(64).long(), 4096)
    assert float(many.min()) > 0.0
    assert float(many.max()) < 1.0
    assert stats.kstest(many.flatten().numpy(), "uniform").pvalue > 1e-4
    # The extreme words: neither 0 nor 1, so that neither logarithm is infinite.
    assert 0.5 / 2**32 > 0.0
    assert (2**32 - 1 + 0.5) / 2**32 < 1.0
    assert math.isfinite(-math.log1p(-(2**32 - 0.5) / 2**32))


def test_streams_nodes_positions_samples_and_seeds_are_all_apart() -> None:
    words = {node_word(stream, node) for stream in Stream for node in range(50)}
    assert len(words) == 4 * 50
    assert node_word(Stream.TARGET) == 0  # the compiled walk relies on it
    keys = [(1, 2, 0, 0), (2, 2, 0, 0), (1, 3, 0, 0), (1, 2, 1, 0), (1, 2, 0, 1), (1 + 2**32, 2, 0, 0)]
    draws = [tuple(uniforms(*(torch.tensor([v]) for v in key), 8)[0].tolist()) for key in keys]
    assert len(set(draws)) == len(keys)
    assert len({value for draw in draws for value in draw}) == 8 * len(keys)


def torch_race(weights: np.ndarray, seed: int, position: int, sample: int, word: int) -> int:
    noise = exponentials(*(torch.tensor([v]) for v in (seed, position, sample, word)), len(weights))[0]
    return int((noise / torch.from_numpy(weights).double()).argmin())


@given(
    st.lists(st.sampled_from([0.0, 1e-30, 1e-6, 0.1, 0.1, 0.5, 1.0, 3.0]), min_size=1, max_size=40),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**31),
    st.integers(0, 7),
    st.integers(0, 2**20),
)
@settings(max_examples=300, deadline=None)
def test_compiled_race_equals_torch(weights, seed, position, sample, word) -> None:
    if not any(weights):
        weights[0] = 1.0
    array = np.array(weights, np.float32)
    assert multinomial(array, seed, position, sample, word) == torch_race(array, seed, position, sample, word)


def test_compiled_race_equals_torch_over_a_real_vocabulary() -> None:
    generator = torch.Generator().manual_seed(0)
    for position in range(100):
        weights = torch.softmax(3 * torch.randn(5003, generator=generator), -1).numpy()
        assert multinomial(weights, 11, position, 0, 0) == torch_race(weights, 11, position, 0, 0)


keys64 = st.tuples(
    st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**31), st.integers(0, 7), st.integers(0, 2**20)
)


@given(st.lists(keys64, min_size=1, max_size=6), st.sampled_from([np.float32, np.float64]))
@settings(max_examples=60, deadline=None)
def test_races_of_many_rows_are_those_of_each(keys, dtype) -> None:
    weights = np.random.default_rng(len(keys)).gamma(0.3, size=(len(keys), 9)).astype(dtype) + dtype(1e-9)
    columns = [np.array(column, np.int64) for column in zip(*keys, strict=True)]
    expected = [torch_race(row, *key) for row, key in zip(weights, keys, strict=True)]
    assert multinomial_rows(weights, *columns).tolist() == expected


@given(st.lists(keys64, min_size=1, max_size=6), st.lists(st.integers(0, 2**31), min_size=0, max_size=5))
@settings(max_examples=60, deadline=None)
def test_first_uniforms_are_those_of_id_0(keys, words) -> None:
    seeds, positions, samples = (np.array(column, np.int64) for column in list(zip(*keys, strict=True))[:3])
    got = first_uniforms(seeds, positions, samples, np.array(words, np.int64))
    assert got.shape == (len(keys), len(words))
    for j, word in enumerate(words):
        key = (torch.from_numpy(column) for column in (seeds, positions, samples))
        expected = uniforms(*key, torch.full((len(keys),), word), 1)[:, 0]
        assert got[:, j].tolist() == expected.tolist()


def chi_square_bound(degrees: int) -> float:
    return degrees + 10 * math.sqrt(2 * degrees)


@pytest.mark.parametrize("axis", ["position", "seed", "sample", "word"])
def test_the_race_draws_in_proportion_to_the_weights(axis) -> None:
    weights = np.array([0.4, 0.0, 0.3, 0.2, 0.05, 0.05, 0.0], np.float32)
    total = 20000
    counts = np.zeros(7)
    key = {"seed": 5, "position": 9, "sample": 0, "word": 0}
    for value in range(total):
        key[axis] = value
        counts[multinomial(weights, key["seed"], key["position"], key["sample"], key["word"])] += 1
    assert counts[1] == counts[6] == 0
    alive = weights > 0
    expected = total * weights[alive].astype(float)
    statistic = float(((counts[alive] - expected) ** 2 / expected).sum())
    assert statistic < chi_square_bound(int(alive.sum()) - 1)


def uncut(logits: np.ndarray, batch: int) -> np.ndarray:
    """Top-k and top-p that keep all ids."""
    return np.array([[logits.shape[1], 1.0]] * batch)


def naive_walk(weights, row_start, drafted, parents, seed, sample, position, node=-1, depth=0):
    """Follow every child that equals the token drawn at its parent; the first of the longest paths."""
    token = torch_race(weights[row_start + node + 1], seed, position + depth, sample, 0)
    children = [j for j in range(len(drafted)) if parents[j] == node and drafted[j] == token]
    ways = [
        naive_walk(weights, row_start, drafted, parents, seed, sample, position, child, depth + 1)
        for child in children
    ]
    paths = [
        ([child, *nodes], [token, *tokens]) for child, (nodes, tokens) in zip(children, ways, strict=True)
    ]
    deepest = max((len(nodes) for nodes, _ in paths), default=0)
    longest = [path for path in paths if len(path[0]) == deepest]
    return min(longest, key=lambda path: path[0][-1], default=([], [token]))


@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(0, 7))
@settings(max_examples=150, deadline=None)
def test_walk_equals_a_naive_tree_walk(seed, batch, width) -> None:
    rng = np.random.default_rng(seed)
    vocab = 3
    counts = rng.integers(0, width + 1, batch)
    starts = np.concatenate(([0], np.cumsum(counts + 1)[:-1])).astype(np.int64)
    logits = (np.log(rng.dirichlet(np.ones(vocab), int((counts + 1).sum()))) - 3.0).astype(np.float32)
    weights = np.exp(logits.astype(np.float64))
    drafted = rng.integers(0, vocab, (batch, width + 1))
    parents = np.array([[rng.integers(-1, j) if j else -1 for j in range(width + 1)] for _ in range(batch)])
    seeds, samples = rng.integers(-(2**62), 2**62, batch), rng.integers(0, 3, batch)
    positions = rng.integers(1, 1000, batch)
    found = np.full((batch, 2 * width + 4), -99, np.int64)
    is_greedy = rng.random(batch) < 0.3
    is_chain = rng.random() < 0.3
    if is_chain:
        parents[:] = np.arange(-1, width)
    requests = np.stack([starts, counts, seeds, samples, positions, is_greedy], 1)
    walk(logits, uncut(logits, batch), requests, drafted, parents[:, : 0 if is_chain else None], found)
    for i in range(batch):
        count = int(counts[i])
        if is_greedy[i]:
            own = weights[starts[i] : starts[i] + count + 1]
            own[:] = own == own.max(1, keepdims=True)
        want_nodes, want_tokens = naive_walk(
            weights, int(starts[i]), drafted[i, :count], parents[i, :count],
            int(seeds[i]), int(samples[i]), int(positions[i]),
        )  # fmt: skip
        count, nodes, tokens = found[i, 0], found[i, 1 : width + 2], found[i, width + 2 :]
        assert nodes[:count].tolist() == want_nodes
        assert tokens[: count + 1].tolist() == want_tokens


@given(st.integers(0, 2**32), st.integers(1, 300), st.booleans())
@settings(max_examples=200, deadline=None)
def test_greedy_walk_takes_the_first_highest_logit_and_no_row_with_nan(seed, vocab, has_nan) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.integers(-3, 4, (1, vocab)).astype(np.float32)
    logits[rng.random((1, vocab)) < 0.3] = -np.inf
    if has_nan:
        logits[0, rng.integers(vocab)] = np.nan
    nodes, found = np.empty((1, 0), np.int64), np.full((1, 2), -99, np.int64)
    walk(logits, uncut(logits, 1), np.array([[0, 0, 1, 0, 1, 1]]), nodes, nodes, found)
    is_dead = has_nan or np.isneginf(logits).all()
    assert found.tolist() == [[0, -1 if is_dead else int(logits[0].argmax())]]
