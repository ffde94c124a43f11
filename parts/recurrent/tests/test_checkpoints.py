"""Random requests against a model whose state is the text itself: no row ever runs after another state than its own text's."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from specdec.interfaces import PackedBatch, Segment
from specdec.runner import SlotPool
from specdec_recurrent.checkpoints import Checkpoints

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
            given = [
                [] if piece.source is None else list(self.states[piece.source]) for piece in group.pieces
            ]
            for piece, state in zip(group.pieces, given, strict=True):
                source = rows if piece.inputs is None else piece.inputs[0]
                for request, position, token in source[piece.rows]:  # type: ignore[misc]
                    assert len(state) == position
                    assert state[: len(request.tokens)] == request.tokens[:position]
                    state.append(token)
                    if piece.inputs is None:
                        seen.append((request, position))
                    else:
                        self.num_rerun += 1
                for target in piece.targets:
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
        for piece in [piece for stage in plan.stages for group in stage for piece in group.pieces]:
            rows = (tokens if piece.inputs is None else piece.inputs[0])[piece.rows]
            again += [] if piece.inputs is None else rows
            state = [*(states[piece.source] if piece.source is not None else []), *rows]
            states.update(dict.fromkeys(piece.targets, state))
        for rows, kept in plan.keeps:
            kept.inputs[0] = [*kept.inputs.get(0, []), *tokens[rows]]  # type: ignore[list-item]  # no tensors
        assert text[:start] + tokens in states.values()
        return again  # type: ignore[return-value]  # ditto

    assert checkpoints.holds(owner, 0)
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
