"""Random requests against a model whose state is the text itself: no row ever runs after another state than its own text's."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from specdec.engine import SlotPool
from specdec_runtime.interfaces import PackedBatch, Segment
from specdec_runtime.states.checkpoints import Checkpoints, Plan

BLOCK, REQUESTS, WORDS = 4, 3, 3


@dataclass(eq=False)
class Request:
    """One request; `tokens` are committed."""

    tokens: list[int]
    most: int
    num_computed: int = 0


@dataclass
class World:
    """An engine without a model."""

    seed: int
    lag: int
    num_snapshots: int = 3 * REQUESTS
    num_slots: int = 128
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    num_reused: int = 0
    num_rerun: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.states: dict[int, list[int]] = {}
        self.checkpoints = Checkpoints(REQUESTS, self.num_snapshots, BLOCK, self.lag, self.copy_state)
        self.pool = SlotPool(self, BLOCK)
        self.running: list[Request] = []

    def copy_state(self, source: int, destination: int) -> None:
        self.states[destination] = list(self.states[source])

    def copy(self, source: int, destination: int, num_rows: int) -> None:
        self.checkpoints.move(source, destination, num_rows)

    def gather(self, sources: torch.Tensor, destinations: torch.Tensor) -> None:
        raise AssertionError("chains only")

    def admit(self) -> None:
        start = [1] * self.random.choice([3, 9, 14])
        tokens = start + [self.random.randrange(WORDS) for _ in range(self.random.randint(1, 12))]
        request = Request(tokens, len(tokens) + self.random.randint(1, 16))
        ids = np.array(tokens[:-1], np.int32)
        known = self.pool.place(
            request, ids, num_rows=len(tokens), num_new=len(tokens), most_slots=request.most
        )
        if known is None:
            return
        known = max(0, known - self.lag)
        request.num_computed = self.checkpoints.resume(request, self.pool.first_slot(request), known)
        assert request.num_computed <= known
        self.pool.rewrite_from(request, request.num_computed)
        self.num_reused += request.num_computed
        self.running.append(request)

    def end(self, request: Request) -> None:
        self.running.remove(request)
        self.pool.release(request)
        self.checkpoints.release(request)

    def step(self) -> None:
        if len(self.running) < REQUESTS and self.random.random() < 0.7:
            self.admit()
        ran: list[tuple[Request, Segment, list[int]]] = []
        row = 0
        for request in list(self.running):
            if self.random.random() < 0.1:
                continue  # no room in the pass
            chunk = min(len(request.tokens) - request.num_computed, self.random.choice([1, 3, 7, 30]))
            is_last = request.num_computed + chunk == len(request.tokens)
            draft = [
                self.random.randrange(WORDS)
                for _ in range(self.random.choice([0, 0, 1, 6]) if is_last else 0)
            ]
            num_rows = chunk + len(draft)
            if not self.pool.reserve(request, request.num_computed + num_rows, request.num_computed):
                self.end(request)
                ran = [each for each in ran if each[0] is not request]
                continue
            ran.append(
                (
                    request,
                    Segment(0, num_rows, 0, request.num_computed, owner=request, num_drafted=len(draft)),
                    draft,
                )
            )
        for request, segment, _ in ran:
            segment.row, segment.first_slot = row, self.pool.first_slot(request)
            row += segment.num_rows
        if ran:
            self.run(ran, row)
            if self.random.random() < 0.1:
                self.run(ran, row)  # as a measurement does
        for request, segment, draft in ran:
            self.commit(request, segment, draft)

    def run(self, ran: list[tuple[Request, Segment, list[int]]], num_rows: int) -> None:
        rows = [
            (request, position, token)
            for request, segment, draft in ran
            for position, token in enumerate([*request.tokens[: segment.kv_len - len(draft)], *draft])
            if position >= segment.num_cached
        ]
        nothing = torch.zeros(num_rows, dtype=torch.int64)
        plan = self.checkpoints.plan(PackedBatch(nothing, nothing, [each[1] for each in ran], None, None))
        for where, kept in plan.keeps:
            kept.inputs[0] = rows[where]  # type: ignore[assignment]  # not tensors here
        seen = []
        for group in (group for stage in plan.stages for group in stage):
            given = [[] if span.source is None else list(self.states[span.source]) for span in group.spans]
            for span, state in zip(group.spans, given, strict=True):
                assert span.rows.stop > span.rows.start, "layers are given no rows"
                source = rows if span.inputs is None else span.inputs[0]
                for request, position, token in source[span.rows]:  # type: ignore[misc]
                    assert len(state) == position
                    assert state[: len(request.tokens)] == request.tokens[:position]
                    state.append(token)
                    if span.inputs is None:
                        seen.append((request, position))
                    else:
                        self.num_rerun += 1
                for target in span.targets:
                    self.states[target] = list(state)
        assert sorted(map(str, seen)) == sorted(str((request, position)) for request, position, _ in rows)

    def commit(self, request: Request, segment: Segment, draft: list[int]) -> None:
        accepted = draft[: self.random.randint(0, len(draft))]
        request.num_computed = segment.kv_len - len(draft) + len(accepted)
        if request.num_computed - len(accepted) == len(request.tokens):
            request.tokens += [*accepted, self.random.randrange(WORDS)]
        self.pool.publish(request, np.array(request.tokens[: request.num_computed], np.int32))
        if len(request.tokens) >= request.most or self.random.random() < 0.03:
            self.end(request)


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("seed", range(8))
def test_rows_run_after_the_state_of_their_own_text(seed, lag) -> None:
    world = World(seed, lag)
    for _ in range(300):
        world.step()
    assert world.num_reused > 100
    assert world.num_rerun > 50
    for request in list(world.running):
        world.end(request)
    assert len(world.checkpoints._free) == REQUESTS
    held = [*world.checkpoints._free_snapshots, *world.checkpoints._snapshots.values()]
    assert sorted(held) == list(range(2 * REQUESTS, 2 * REQUESTS + world.num_snapshots))
    assert world.checkpoints._wanted == {}


def test_a_draft_that_is_made_row_by_row() -> None:
    """As a draft model's: nothing is accepted until a row comes that is not drafted; then the accepted rows run again."""
    checkpoints, owner = Checkpoints(1, 0, 0, 0, lambda *_: None), object()
    text, states = [5, 6, 7, 8, 9, 10, 11], dict[int, list[int]]()

    def run(start: int, tokens: list[int], *, is_draft: bool) -> list[int]:
        """Return the tokens that run again."""
        nothing, count = torch.zeros(len(tokens)), len(tokens)
        segment = Segment(0, count, 0, start, owner=owner, num_drafted=count if is_draft else 0)
        plan = checkpoints.plan(PackedBatch(nothing, nothing, [segment], None, None))
        again = []
        for span in [span for stage in plan.stages for group in stage for span in group.spans]:
            rows = (tokens if span.inputs is None else span.inputs[0])[span.rows]
            again += [] if span.inputs is None else rows
            state = [*(states[span.source] if span.source is not None else []), *rows]
            states.update(dict.fromkeys(span.targets, state))
        for rows, kept in plan.keeps:
            kept.inputs[0] = [*kept.inputs.get(0, []), *tokens[rows]]  # type: ignore[list-item]  # no tensors
        assert text[:start] + tokens in states.values()
        return again  # type: ignore[return-value]  # ditto

    assert checkpoints.holds(owner, 0)
    assert run(0, text[:4], is_draft=False) == []
    for depth in range(2):
        run(4 + depth, [text[4 + depth]], is_draft=True)
    assert run(4, text[4:], is_draft=False) == []
    assert [checkpoints.holds(owner, n) for n in (3, 4, 5, 6, 7)] == [False, True, False, False, True]
    checkpoints.release(owner)
    assert run(0, text[:4], is_draft=False) == []
    for accepted in (0, 1, 2, 3):
        for depth in range(3):
            assert run(4 + depth, [text[4 + depth]], is_draft=True) == []
        assert [checkpoints.holds(owner, n) for n in (3, 4, 5, 6, 7, 8)] == [
            False,
            True,
            True,
            True,
            True,
            False,
        ]
        if accepted == 3:
            assert run(7, [12], is_draft=False) == []
        elif accepted:
            assert run(4 + accepted, text[4 + accepted :], is_draft=False) == text[4 : 4 + accepted]
            checkpoints.release(owner)
            assert not checkpoints.holds(owner, 4)
            run(0, text[:4], is_draft=False)


def made(num_snapshots: int = 8, lag: int = 0) -> Checkpoints:
    return Checkpoints(REQUESTS, num_snapshots, BLOCK, lag, lambda *_: None)


def ran(
    checkpoints: Checkpoints, owner: object, start: int, num_rows: int, *, at: int = 0, num_drafted: int = 0
) -> Plan:
    """Run rows of a request whose first slot is `at`."""
    nothing = torch.zeros(num_rows)
    segment = Segment(0, num_rows, at, start, owner=owner, num_drafted=num_drafted)
    return checkpoints.plan(PackedBatch(nothing, nothing, [segment], None, None))


def prompted(checkpoints: Checkpoints, num_rows: int, at: int = 0) -> None:
    """Run a request of these rows, and end it."""
    owner = object()
    ran(checkpoints, owner, 0, num_rows, at=at)
    checkpoints.release(owner)


def known(checkpoints: Checkpoints, at: int, num_rows: int) -> int:
    """Return how many of the cached rows from slot `at` on a request need not run again."""
    owner = object()
    num_known = checkpoints.resume(owner, at, num_rows)
    checkpoints.release(owner)
    return num_known


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("chunks", [(12,), (11, 1), (10, 1, 1), (8, 4), (7, 5), (3, 4, 5), (1,) * 12])
def test_the_last_whole_block_of_a_text_is_known(chunks: tuple[int, ...], lag: int) -> None:
    checkpoints, owner, start = made(lag=lag), object(), 0
    for chunk in chunks:
        ran(checkpoints, owner, start, chunk)
        start += chunk
    checkpoints.release(owner)
    assert known(checkpoints, 0, 12 - lag) == 12 - lag


@pytest.mark.parametrize("lag", [0, 1])
def test_a_prefix_without_a_snapshot_gets_one_from_the_next_request_that_begins_with_it(lag: int) -> None:
    checkpoints = made(lag=lag)
    second = object()
    prompted(checkpoints, 16)
    assert checkpoints.resume(second, 32, 8 - lag) == 0
    ran(checkpoints, second, 0, 20, at=32)
    assert known(checkpoints, 32, 8 - lag) == 8 - lag
    assert known(checkpoints, 32, 20 - lag) == 20 - lag


def test_a_snapshot_counts_for_its_own_rows_only() -> None:
    checkpoints = made()
    prompted(checkpoints, 4)
    assert [known(checkpoints, 0, n) for n in (3, 4, 5)] == [0, 4, 4]
    assert [known(checkpoints, at, 8) for at in (3, 4)] == [1, 0]


def test_a_snapshot_moves_with_the_last_row_before_it() -> None:
    checkpoints = made()
    for at in (0, 4):
        prompted(checkpoints, 4, at)
    checkpoints.move(0, 16, 3)  # the row behind which the first one is stays
    assert [known(checkpoints, at, 4) for at in (0, 4, 16)] == [4, 4, 0]
    checkpoints.move(1, 17, 3)
    assert [known(checkpoints, at, 4) for at in (0, 4, 16)] == [0, 4, 4]
    checkpoints.move(40, 15, 4)  # overwrites rows 15 to 18
    assert known(checkpoints, 16, 4) == 4
    checkpoints.move(40, 16, 4)
    assert known(checkpoints, 16, 4) == 0


def test_the_snapshot_that_was_used_least_recently_makes_room() -> None:
    checkpoints = made(num_snapshots=2)
    for at in (0, 16):
        prompted(checkpoints, 4, at)
    assert known(checkpoints, 0, 4) == 4
    prompted(checkpoints, 4, at=32)
    assert [known(checkpoints, at, 4) for at in (0, 16, 32)] == [4, 0, 4]


def test_a_long_answer_takes_one_snapshot_beside_that_of_its_prompt() -> None:
    checkpoints, answering = made(num_snapshots=3), object()
    prompted(checkpoints, 4, at=64)
    ran(checkpoints, answering, 0, 8)
    for start in range(8, 42):
        ran(checkpoints, answering, start, 1)
    assert [known(checkpoints, 0, n) for n in (8, 40)] == [8, 40]
    assert known(checkpoints, 64, 4) == 4


@pytest.mark.parametrize(("num_rows", "kept"), [(13, slice(10, 13)), (4, slice(0, 4)), (3, slice(0, 3))])
def test_the_inputs_of_drafted_rows_are_kept_and_not_those_of_a_long_chunk(
    num_rows: int, kept: slice
) -> None:
    assert [rows for rows, _ in ran(made(), object(), 0, num_rows, num_drafted=3).keeps] == [kept]
