"""Rows of a proposer's requests: no request ever has rows of another text, whatever was taken over, moved or overwritten."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from specdec_runtime.drafting import RequestSlots
from specdec_runtime.interfaces import KVCache, LayerShape

SIZE, NUM_BLOCKS = 2, 36
POISON = -1.0


def marks(ids: list[int]) -> list[float]:
    """A number for each row that depends on all ids up to it, exact in float32."""
    return list(
        itertools.accumulate(ids, lambda value, token: (value * 31 + token + 1) % 999_983, initial=0)
    )[1:]


def cache_of(num_blocks: int = NUM_BLOCKS) -> KVCache:
    cache = KVCache(num_blocks * SIZE, torch.device("cpu"))
    cache.allocate(0, LayerShape(1, 1, 1, torch.float32))
    cache.keys[0].fill_(POISON)
    cache.values[0].fill_(POISON)
    return cache


class Requests(RuleBasedStateMachine):
    """Requests of two ids only begin alike often; each writes, guesses, is published, told anew, moved and let go."""

    @initialize(keeps=st.booleans())
    def make(self, keeps: bool) -> None:
        self.cache = cache_of()
        # A pool that keeps no prefixes has blocks of its own size.
        self.pool = RequestSlots(self.cache, SIZE if keeps else 0)
        self.keeps = keeps
        self.texts: dict[str, list[int]] = {}
        self.rows: dict[str, int] = {}
        self.count = 0

    @rule(head=st.integers(0, 1), length=st.integers(1, 24), tail=st.integers(0, 3))
    def arrive(self, head: int, length: int, tail: int) -> None:
        self.count += 1
        name, text = f"r{self.count}", [head] * length + [tail & 1, tail >> 1]
        held = self.pool.resume(name, np.array(text))
        assert held is None or held % SIZE == 0
        assert self.keeps or held == 0
        if held:
            self.texts[name], self.rows[name] = text, held
            self.check(name)

    @rule(head=st.integers(0, 1), length=st.integers(1, 24))
    def arrive_unasked(self, head: int, length: int) -> None:
        self.count += 1
        name = f"r{self.count}"
        if self.pool.reserve(name, length, 0):
            self.texts[name], self.rows[name] = [head] * length, 0

    @precondition(lambda self: self.texts)
    @rule(data=st.data(), count=st.integers(0, 9), guesses=st.integers(0, 5), publishes=st.booleans())
    def write(self, data: st.DataObject, count: int, guesses: int, publishes: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.texts)))
        text, start = self.texts[name], self.rows[name]
        if start == len(text):
            text += [data.draw(st.integers(0, 1))]
        end = min(len(text), start + count)
        if not self.pool.reserve(name, end + guesses, start):
            return
        first = self.pool.first_slot(name)
        written = [*marks(text)[start:end], *[POISON] * guesses]
        for tensor in (self.cache.keys[0], self.cache.values[0]):
            tensor[first + start : first + end + guesses, 0, 0] = torch.tensor(written)
        self.rows[name] = end
        if publishes:
            assert (
                self.pool.is_publishable(name, end) or not self.keeps or self.published(name) == end // SIZE
            )
            self.pool.publish(name, np.array(text[:end]))

    def published(self, name: str) -> int:
        return len(self.pool._runs[name].keys)

    @precondition(lambda self: self.texts)
    @rule(data=st.data(), kept=st.integers(0, 20), token=st.integers(0, 1))
    def tell_anew(self, data: st.DataObject, kept: int, token: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.texts)))
        kept = min(kept, self.rows[name])
        self.pool.forget_from(name, kept)
        self.rows[name] = kept
        self.texts[name] = self.texts[name][:kept] + [token] * 4

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def gather(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.texts)))
        self.pool.gather_room(name)
        num_blocks = self.pool._runs[name].num_blocks + self.pool._blocks.num_free
        assert self.pool.reserve(name, num_blocks * self.pool._block_size, self.rows[name])

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.texts)))
        self.pool.release(name)
        del self.texts[name], self.rows[name]

    def check(self, name: str) -> None:
        first, count = self.pool.first_slot(name), self.rows[name]
        for tensor in (self.cache.keys[0], self.cache.values[0]):
            assert tensor[first : first + count, 0, 0].tolist() == marks(self.texts[name])[:count]

    @invariant()
    def rows_are_those_of_their_texts_and_runs_are_apart(self) -> None:
        if not hasattr(self, "pool"):
            return
        # A run without a block has no rows to share, wherever it says that it starts.
        runs = sorted((run.start, run.num_blocks) for run in self.pool._runs.values() if run.num_blocks)
        assert all(a + n <= b for (a, n), (b, _) in itertools.pairwise(runs))
        assert self.pool._blocks.num_free == self.pool._blocks.num_blocks - sum(n for _, n in runs)
        for name in self.texts:
            self.check(name)


TestRequests = Requests.TestCase
TestRequests.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def fill(pool: RequestSlots, cache: KVCache, name: str, ids: list[int]) -> None:
    assert pool.reserve(name, len(ids), 0)
    first = pool.first_slot(name)
    cache.keys[0][first : first + len(ids), 0, 0] = torch.tensor(marks(ids))
    pool.publish(name, np.array(ids))


def test_what_is_used_again_stays_longest() -> None:
    """Of two texts the one that has been asked for again survives those that come after it."""
    cache = cache_of(3 * (3 + 16))
    pool = RequestSlots(cache, SIZE)
    used, unused = [1, 2, 3, 4, 5, 6], [7, 8, 9, 7, 8, 9]
    for name, ids in (("a", used), ("b", unused)):
        fill(pool, cache, name, ids)
        pool.release(name)
    assert pool.resume("again", np.array(used)) == 6
    pool.release("again")
    for name in ("c", "d"):
        fill(pool, cache, name, [0] * 6)
        pool.release(name)
    assert pool.resume("late", np.array(unused)) == 0
    assert pool.resume("late", np.array(used)) == 6
    first = pool.first_slot("late")
    assert cache.keys[0][first : first + 6, 0, 0].tolist() == marks(used)
    pool.release("late")


def test_a_prefix_is_found_time_after_time_where_there_is_room_for_one_text_only() -> None:
    cache = cache_of(20)
    pool = RequestSlots(cache, SIZE)
    ids = list(range(30))
    fill(pool, cache, "first", ids)
    pool.release("first")
    for turn in range(5):
        assert pool.resume(f"{turn}", np.array(ids)) == 30
        first = pool.first_slot(f"{turn}")
        assert cache.keys[0][first : first + 30, 0, 0].tolist() == marks(ids)
        pool.release(f"{turn}")


def test_there_may_be_no_room_for_what_is_known() -> None:
    cache = cache_of(20)
    pool = RequestSlots(cache, SIZE)
    fill(pool, cache, "first", list(range(30)))
    assert pool.resume("second", np.arange(30)) is None
    assert pool.resume("third", np.arange(1, 30)) == 0
    pool.release("first")
    assert pool.resume("second", np.arange(30)) == 30


def test_a_text_that_arrived_in_pieces_is_known_whole() -> None:
    """Its run grew beyond its headroom; the next one must not lie over what it grew by."""
    cache = cache_of(400)
    pool = RequestSlots(cache, SIZE)
    ids = list(range(120))
    for end in range(20, len(ids) + 1, 20):
        assert pool.reserve("first", end, max(0, end - 20))
    pool.publish("first", np.array(ids))
    pool.release("first")
    assert pool.resume("second", np.array(ids)) == len(ids)


def test_slots_grow_move_and_come_back() -> None:
    cache = KVCache(12 * 16, torch.device("cpu"))
    cache.allocate(0, LayerShape(1, 2, 2, torch.float32))
    pool = RequestSlots(cache)
    assert pool.reserve("a", 20, 0)
    first = pool.first_slot("a")
    cache.keys[0][first : first + 20] = torch.arange(20.0)[:, None, None]
    assert pool.reserve("b", 17, 0)
    assert pool.first_slot("b") >= first + 32
    assert pool.reserve("a", 90, 20)  # has to move past b
    moved = pool.first_slot("a")
    assert moved != first
    assert cache.keys[0][moved : moved + 20, 0, 0].tolist() == list(range(20))
    assert not pool.reserve("c", 200, 0)
    assert pool.first_slot("a") == moved
    pool.release("a")
    pool.release("a")
    pool.release("b")
    assert pool.reserve("c", 192, 0)


def test_headroom_is_given_back_before_a_request_goes_without() -> None:
    cache = KVCache(64 * 16, torch.device("cpu"))
    cache.allocate(0, LayerShape(1, 2, 2, torch.float32))
    pool = RequestSlots(cache)
    for request in range(16):
        assert pool.reserve(f"{request}", 40, 0)
        first = pool.first_slot(f"{request}")
        cache.keys[0][first : first + 40] = request
    assert not pool.reserve("late", 17 * 16, 0)
    for request in range(16):
        first = pool.first_slot(f"{request}")
        assert (cache.keys[0][first : first + 40] == request).all()
