"""Runs of blocks: no overlap, nothing lost, and what was freed last is reused last."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from specdec.engine.slot_pool import BlockAllocator


class Allocator(RuleBasedStateMachine):
    """Compares the allocator with a list of who owns what."""

    @initialize(size=st.integers(1, 24))
    def make(self, size) -> None:
        self.size = size
        self.blocks = BlockAllocator(size)
        self.runs: dict[int, int] = {}

    def owned(self) -> list[int]:
        return [b for start, count in self.runs.items() for b in range(start, start + count)]

    @rule(count=st.integers(1, 10))
    def allocate(self, count) -> None:
        owned = set(self.owned())
        free_run = any(all(b not in owned for b in range(s, s + count)) for s in range(self.size - count + 1))
        start = self.blocks.allocate(count)
        assert (start is not None) == free_run
        if start is not None:
            assert start >= 0
            assert start + count <= self.size
            assert not owned & set(range(start, start + count))
            self.runs[start] = count

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), count=st.integers(1, 6))
    def extend(self, data, count) -> None:
        start = data.draw(st.sampled_from(sorted(self.runs)))
        end = start + self.runs[start]
        owned = set(self.owned())
        fits = end + count <= self.size and not owned & set(range(end, end + count))
        assert self.blocks.extend(end, count) == fits
        if fits:
            self.runs[start] += count

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def free(self, data) -> None:
        start = data.draw(st.sampled_from(sorted(self.runs)))
        self.blocks.free(start, self.runs.pop(start))

    @invariant()
    def counts_are_right(self) -> None:
        if hasattr(self, "blocks"):
            assert self.blocks.num_free == self.size - len(self.owned())


TestAllocator = Allocator.TestCase
TestAllocator.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_what_was_freed_last_is_reused_last() -> None:
    blocks = BlockAllocator(6)
    assert [blocks.allocate(2) for _ in range(2)] == [0, 2]
    blocks.free(2, 2)
    assert blocks.allocate(2) == 4
    assert blocks.allocate(2) == 2


def test_what_a_run_grew_by_is_reused_last_as_well() -> None:
    blocks = BlockAllocator(100)
    start = blocks.allocate(10)
    assert start == 0
    assert blocks.extend(10, 20)
    blocks.free(0, 30)
    assert blocks.allocate(30) == 30
