"""Placement in the cache: no overlap, no stale or foreign row is ever read, nothing leaks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from speccheck.cache_rows import markers

from specdec.engine.kv_manager import KVManager
from specdec.engine.prefix_cache import PrefixCache
from specdec.engine.sequence import Sequence
from specdec.engine.slot_pool import _Run
from specdec.logits.logprobs import LogprobRecord
from specdec.sampling_params import SamplingParams
from specdec_runtime.interfaces import KVCache, LayerShape

POISON = -1000.0


def ids(*tokens: int) -> np.ndarray:
    return np.array(tokens, np.int32)


def test_a_prefix_is_found_by_content_and_by_what_precedes_it() -> None:
    cache = PrefixCache(2)
    a = cache.publish(0, ids(1, 2), 10)
    b = cache.publish(a, ids(3, 4), 11)
    other = cache.publish(0, ids(3, 4), 12)
    assert len({a, b, other}) == 3
    assert cache.match(ids(1, 2, 3, 4, 5)) == [10, 11]
    assert cache.match(ids(1, 2, 3)) == [10]
    assert cache.match(ids(3, 4, 1, 2)) == [12]
    assert cache.match(ids(2, 1)) == []
    assert cache.match(ids(1)) == []
    # A second block of the same content keeps the older slots and key.
    assert cache.publish(0, ids(1, 2), 20) == a
    assert cache.match(ids(1, 2)) == [10]
    cache.forget(10, 1)
    assert cache.match(ids(1, 2, 3, 4, 5)) == []
    cache.forget(0, 30)
    assert cache.match(ids(3, 4)) == []


def run_of(kv: KVManager, sequence: Sequence) -> _Run:
    return kv.pool._runs[sequence]


SIZE = 4
NUM_BLOCKS = 24
VOCAB = 2


class Placement(RuleBasedStateMachine):
    """Runs sequences through the manager; every row holds a number made of its prefix, free rows hold poison.

    Sequences share prefixes often (two tokens only), run in chunks, draft, move, are preempted and end in any order.
    """

    @initialize(is_cached=st.booleans())
    def make(self, is_cached) -> None:
        self.cache = KVCache(NUM_BLOCKS * SIZE, torch.device("cpu"))
        for layer in range(2):
            self.cache.allocate(layer, LayerShape(1, 1, 2, torch.float32))
            self.cache.keys[layer].fill_(POISON)
            self.cache.values[layer].fill_(POISON)
        self.keys = [self.cache.keys[layer].numpy() for layer in range(2)]
        self.values = [self.cache.values[layer].numpy() for layer in range(2)]
        self.kv = KVManager(self.cache, SIZE, is_prefix_cached=is_cached)
        self.placed: list[Sequence] = []
        self.waiting: list[Sequence] = []
        self.count = 0
        self.hits = 0

    @rule(
        head=st.sampled_from([0, 1]),
        length=st.integers(1, 70),
        tail=st.integers(0, 3),
        room=st.integers(1, 20),
        chunk=st.integers(1, 12),
    )
    def arrive(self, head, length, tail, room, chunk) -> None:
        tokens = np.array([head] * length + [(tail >> i) & 1 for i in range(2)], np.int32)
        self.count += 1
        sequence = Sequence(
            f"s{self.count}", tokens, SamplingParams(), seed=0, sample_index=0,
            max_num_tokens=min(len(tokens) + room, NUM_BLOCKS * SIZE - 1),
        )  # fmt: skip
        if sequence.num_tokens < sequence.max_num_tokens:
            self.admit(sequence, chunk)

    def admit(self, sequence: Sequence, budget: int) -> None:
        """Place as the scheduler does: with room for one chunk of `budget` tokens."""
        if not self.kv.admit(sequence, min(sequence.num_tokens, budget)):
            self.waiting.append(sequence)
            return
        self.placed.append(sequence)
        self.hits += sequence.num_computed
        assert sequence.num_computed < sequence.num_tokens
        self.check_rows(sequence)
        self.run(sequence, min(sequence.num_tokens - sequence.num_computed, budget), reserves=False)

    def run(self, sequence: Sequence, chunk: int, reserves: bool = True, nodes: int = 0) -> bool:
        """Write the rows of a chunk and of rejected drafts, as a pass does."""
        if reserves and not self.kv.reserve(
            sequence, sequence.num_computed + chunk + nodes, sequence.num_computed
        ):
            return False
        tokens = sequence.token_ids
        start = sequence.num_computed
        assert start + chunk + nodes <= run_of(self.kv, sequence).num_blocks * SIZE, "rows beyond the run"
        rows = np.concatenate((markers(tokens)[start : start + chunk], np.full(nodes, POISON)))
        first = sequence.first_slot + start
        for layer in range(2):
            self.keys[layer][first : first + chunk + nodes] = rows[:, None, None] + layer
            self.values[layer][first : first + chunk + nodes] = rows[:, None, None] - layer
        sequence.num_computed += chunk
        self.kv.publish(sequence)
        return True

    @precondition(lambda self: self.placed)
    @rule(data=st.data(), chunk=st.integers(1, 12), nodes=st.integers(0, 9), emitted=st.integers(0, 5))
    def step(self, data, chunk, nodes, emitted) -> None:
        sequence = data.draw(st.sampled_from(self.placed))
        chunk = min(chunk, sequence.num_tokens - sequence.num_computed)
        if chunk == 0 or not self.run(sequence, chunk, nodes=nodes):
            return
        emitted = min(emitted, sequence.max_num_tokens - sequence.num_tokens)
        if sequence.num_computed == sequence.num_tokens and emitted:
            sequence.append([(self.count + i) % VOCAB for i in range(emitted)], 0)

    @precondition(lambda self: self.placed)
    @rule(data=st.data(), comes_back=st.booleans(), chunk=st.integers(1, 30))
    def leave(self, data, comes_back, chunk) -> None:
        sequence = data.draw(st.sampled_from(self.placed))
        self.placed.remove(sequence)
        self.kv.release(sequence)
        assert (sequence.num_computed, sequence.first_slot) == (0, -1)
        if comes_back:
            self.admit(sequence, chunk)

    def check_rows(self, sequence: Sequence) -> None:
        rows = markers(sequence.token_ids)[: sequence.num_computed]
        first = sequence.first_slot
        for layer in range(2):
            assert (self.keys[layer][first : first + len(rows), 0, 0] == rows + layer).all()
            assert (self.values[layer][first : first + len(rows), 0] == rows[:, None] - layer).all()

    @invariant()
    def rows_are_those_of_their_tokens_and_runs_are_apart(self) -> None:
        if not hasattr(self, "kv"):
            return
        runs = sorted((s.first_slot // SIZE, run_of(self.kv, s).num_blocks) for s in self.placed)
        assert all(a + n <= b for (a, n), (b, _) in itertools.pairwise(runs))
        assert all(a >= 0 and a + n <= NUM_BLOCKS for a, n in runs)
        assert self.kv.pool.num_free_slots == SIZE * (NUM_BLOCKS - sum(n for _, n in runs))
        for sequence in self.placed:
            self.check_rows(sequence)


TestPlacement = Placement.TestCase
TestPlacement.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)


def made(length: int, max_num_tokens: int) -> Sequence:
    tokens = np.arange(length, dtype=np.int32)
    return Sequence("s", tokens, SamplingParams(), seed=0, sample_index=0, max_num_tokens=max_num_tokens)


def manager(num_blocks: int, is_prefix_cached: bool = True) -> KVManager:
    cache = KVCache(num_blocks * SIZE, torch.device("cpu"))
    cache.allocate(0, LayerShape(1, 1, 1, torch.float32))
    cache.keys[0].fill_(POISON)
    cache.values[0].fill_(POISON)
    return KVManager(cache, SIZE, is_prefix_cached=is_prefix_cached)


def computed(kv: KVManager, sequence: Sequence) -> None:
    sequence.num_computed = sequence.num_tokens
    kv.publish(sequence)


def test_a_prefix_longer_than_the_first_chunk_gets_the_room_it_needs() -> None:
    kv = manager(220)
    first = made(400, 410)
    assert kv.admit(first, 400)
    computed(kv, first)
    second = made(400, 410)
    assert kv.admit(second, 8)  # a small token budget
    assert second.num_computed == 396  # all whole blocks before the last token
    assert run_of(kv, second).num_blocks * SIZE >= second.num_computed + 4
    assert second.num_cached_prompt_tokens == 396
    taken = range(first.first_slot // SIZE, first.first_slot // SIZE + run_of(kv, first).num_blocks)
    assert second.first_slot // SIZE not in taken


def test_a_block_is_published_as_soon_as_it_is_whole() -> None:
    kv = manager(100)
    sequence = made(40, 50)
    assert kv.admit(sequence, 40)
    for sequence.num_computed in range(1, 41):
        kv.publish(sequence)
        assert len(run_of(kv, sequence).keys) == sequence.num_computed // SIZE


def test_nobody_waits_for_rows_of_another_salt() -> None:
    kv = manager(100)
    running, waiting = made(200, 210), made(200, 210)
    assert kv.admit(running, 200)
    assert kv.has_pending_prefix(waiting, [running])
    waiting.cache_salt = "another tenant"
    assert not kv.has_pending_prefix(waiting, [running])


def test_prompt_logprobs_skip_prefix_hits() -> None:
    kv = manager(100)
    first = made(40, 50)
    assert kv.admit(first, 40)
    computed(kv, first)
    second = Sequence(
        "t", first.token_ids, SamplingParams(prompt_logprobs=0), seed=0, sample_index=0, max_num_tokens=50
    )
    second.prompt_logprobs = LogprobRecord(0, None)
    assert kv.admit(second, 40)
    assert second.num_computed == 0


def test_released_blocks_are_found_until_they_are_overwritten() -> None:
    kv = manager(32, is_prefix_cached=True)
    first = made(40, 41)
    assert kv.admit(first, 40)
    computed(kv, first)
    kv.release(first)
    again = made(40, 41)
    assert kv.admit(again, 40)
    assert again.num_computed == 36
    kv.release(again)
    other = Sequence(
        "o", np.full(100, 7, np.int32), SamplingParams(), seed=0, sample_index=0, max_num_tokens=110
    )
    assert kv.admit(other, 100)
    computed(kv, other)
    kv.release(other)
    filler = Sequence(
        "f", np.full(127, 8, np.int32), SamplingParams(), seed=0, sample_index=0, max_num_tokens=127
    )
    assert kv.admit(filler, 127)
    kv.release(filler)
    last = made(40, 41)
    assert kv.admit(last, 40)
    assert last.num_computed == 0


@given(st.integers(0, 5), st.integers(1, 5), st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_gather_moves_rows_whatever_their_order_of_overlap(base, count, seed) -> None:
    rng = np.random.default_rng(seed)
    cache = KVCache(16, torch.device("cpu"))
    cache.allocate(0, LayerShape(2, 3, 1, torch.float32))
    cache.keys[0].copy_(torch.randn(16, 2, 3))
    cache.values[0].copy_(torch.randn(16, 2, 1))
    before = cache.keys[0].clone(), cache.values[0].clone()
    sources = torch.from_numpy(np.sort(rng.choice(np.arange(base, 16), count, replace=False)))
    cache.gather(torch.tensor([base]), (sources - base)[None])
    for tensor, old in zip((cache.keys[0], cache.values[0]), before, strict=True):
        assert torch.equal(tensor[base : base + count], old[sources])
        assert torch.equal(tensor[:base], old[:base])
        assert torch.equal(tensor[base + count :], old[base + count :])


def test_copy_and_write_touch_only_their_rows() -> None:
    cache = KVCache(10, torch.device("cpu"))
    cache.write(3, torch.ones(2, 1, 4), torch.ones(2, 1, 5), slice(4, 6))
    assert cache.bytes_per_token == 9 * 4
    cache.keys[3][:4] = POISON
    cache.keys[3][6:] = POISON
    cache.copy(4, 0, 2)
    assert cache.keys[3][:, 0, 0].tolist() == [1, 1, POISON, POISON, 1, 1, POISON, POISON, POISON, POISON]
    cache.write(3, torch.full((2, 1, 4), 2.0), torch.full((2, 1, 5), 3.0), torch.tensor([9, 2]))
    assert cache.keys[3][:, 0, 1].tolist() == [1, 1, 2, POISON, 1, 1, POISON, POISON, POISON, 2]
    assert cache.values[3][[9, 2], 0, 4].tolist() == [3, 3]


@pytest.mark.parametrize("size", [1, 3])
def test_growth_moves_rows_when_the_way_is_blocked(size) -> None:
    cache = KVCache(300, torch.device("cpu"))
    cache.allocate(0, LayerShape(1, 1, 1, torch.float32))
    cache.keys[0].fill_(POISON)
    cache.values[0].fill_(POISON)
    kv = KVManager(cache, size, is_prefix_cached=False)
    first, second = made(4, 100), made(4, 100)
    assert kv.admit(first, 4)
    assert kv.admit(second, 4)
    old = first.first_slot
    for tensor in (cache.keys[0], cache.values[0]):
        tensor[old : old + 4] = torch.arange(4.0)[:, None, None]
    first.num_computed = 4
    room = run_of(kv, first).num_blocks * size
    assert kv.reserve(first, room, first.num_computed)
    assert first.first_slot == old
    assert kv.reserve(first, room + 1, first.num_computed)
    assert first.first_slot != old
    counts = [run_of(kv, sequence).num_blocks for sequence in (first, second)]
    assert counts[0] > room // size
    assert kv.pool.num_free_slots == kv.pool.num_slots - size * sum(counts)
    for tensor in (cache.keys[0], cache.values[0]):
        rows = tensor[first.first_slot : first.first_slot + 5].flatten().tolist()
        assert rows == [0, 1, 2, 3, POISON]
    assert not kv.reserve(second, 400, second.num_computed)


def fill(kv: KVManager, sequence: Sequence) -> None:
    """Write a sequence's rows and make them known."""
    first = sequence.first_slot
    rows = torch.from_numpy(markers(sequence.token_ids)).float()[:, None, None]
    for tensor in (kv.pool._cache.keys[0], kv.pool._cache.values[0]):
        tensor[first : first + sequence.num_tokens] = rows
    computed(kv, sequence)


def check_marks(kv: KVManager, sequence: Sequence) -> None:
    first = sequence.first_slot
    want = markers(sequence.token_ids)[: sequence.num_computed].tolist()
    for tensor in (kv.pool._cache.keys[0], kv.pool._cache.values[0]):
        assert tensor[first : first + sequence.num_computed].flatten().tolist() == want


def other(name: str, token: int, length: int, max_num_tokens: int) -> Sequence:
    tokens = np.full(length, token, np.int32)
    return Sequence(name, tokens, SamplingParams(), seed=0, sample_index=0, max_num_tokens=max_num_tokens)


@pytest.mark.parametrize("is_blocked", [False, True], ids=["in place", "by a move"])
def test_growth_over_known_blocks_makes_them_unknown(is_blocked) -> None:
    """A sequence grows over what another one left; that one's text must not be found there any more."""
    kv = manager(70 if is_blocked else 96)
    first = other("grows", 7, 8, 250)  # two blocks and headroom: 18
    assert kv.admit(first, 8)
    wall = other("wall", 9, 4, 5) if is_blocked else None  # directly behind it
    if wall is not None:
        assert kv.admit(wall, 4)
    left = made(72, 73)
    assert kv.admit(left, 72)
    fill(kv, left)
    kv.release(left)
    fill(kv, first)
    old = first.first_slot
    assert kv.reserve(first, 40 * SIZE, first.num_computed)
    assert (first.first_slot != old) == is_blocked
    first.append([7] * 150, 0)
    fill(kv, first)
    again = made(72, 73)
    if wall is not None:
        kv.release(wall)
    assert kv.admit(again, 72)
    check_marks(kv, again)
    check_marks(kv, first)


def test_a_block_that_copying_overwrote_ends_the_prefix() -> None:
    """The known blocks lie in the new run, in the wrong order."""
    kv = manager(40)
    sequence = made(12, 20)
    marks = torch.from_numpy(markers(sequence.token_ids)).float()[:, None, None]
    prefixes = kv.pool._prefixes
    assert prefixes is not None
    key = prefixes.publish(0, sequence.token_ids[:4], 1)
    prefixes.publish(key, sequence.token_ids[4:8], 0)
    for tensor in (kv.pool._cache.keys[0], kv.pool._cache.values[0]):
        tensor[4:8], tensor[0:4] = marks[:4], marks[4:8]
    assert kv.admit(sequence, 12)
    assert sequence.first_slot == 0
    assert sequence.num_computed == 4
    check_marks(kv, sequence)
    fill(kv, sequence)
    kv.release(sequence)
    again = made(12, 20)
    assert kv.admit(again, 12)
    check_marks(kv, again)


@pytest.mark.parametrize(("start", "destination"), [(0, 1), (0, 2), (0, 5), (2, 0), (2, 1)])
def test_known_blocks_are_found_where_they_were_moved(start: int, destination: int) -> None:
    """The blocks of a draft's cache move within themselves too."""
    prefixes, text, key = PrefixCache(2), ids(0, 1, 2, 3, 4, 5), 0
    for index in range(3):
        key = prefixes.publish(key, text[2 * index : 2 * index + 2], start + index)
    prefixes.move(start, destination, 3)
    assert prefixes.match(text) == [destination, destination + 1, destination + 2]
    assert prefixes.key_of(destination + 2) == key
    prefixes.forget(destination, 3)
    assert prefixes.match(text) == []
