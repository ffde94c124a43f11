"""Steps behind drafts whose verdict the host has not read: their rows, and the drafts that they take."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import numpy as np
import pytest
import torch

from specdec.engine.containment.guard import ProposerGuard
from specdec.engine.sequence import Sequence
from specdec.engine.step import Row, Step
from specdec.engine.steps_ahead import StepsAhead, needs_tokens_to_draft, step_behind
from specdec.interfaces import (
    AsyncVerdict,
    DeviceNodes,
    Draft,
    Draws,
    NeedsTokens,
    PassMemory,
    ProposeBatch,
    Proposer,
    Scores,
    VerdictOffsets,
)
from specdec.sampling_params import SamplingParams

PLACES = VerdictOffsets(40, 48, 4)


def last_step(*, most: int = 30) -> Step:
    """A launched step of two samples of 10 and 12 tokens, with 3 and 1 drafted nodes."""
    rows = []
    for index, count in enumerate((10, 12)):
        own = SamplingParams(max_tokens=most)
        sequence = Sequence(
            str(index), np.arange(count, dtype=np.int32), own, seed=0, sample_index=0, max_num_tokens=most
        )
        rows.append(Row(sequence, count - 1, count, chunk=1, is_sampled=True, num_nodes=3 - 2 * index))
    step = Step(rows, sampled=rows)
    step.device_nodes = DeviceNodes(torch.zeros(1, 2, 3, dtype=torch.int64), [3, 1], 9)
    step.pending = AsyncVerdict(torch.zeros(2, 4, dtype=torch.int64), torch.zeros(2), cast(Any, None), PLACES)
    step.scores = cast(Any, SimpleNamespace(prompt_logits=None, logits=torch.zeros(6, 9)))
    return step


def running(step: Step) -> list[Any]:
    return [row.sequence for row in step.rows]


def test_rows_begin_as_if_drafts_were_rejected_and_move_when_the_verdict_is_read() -> None:
    last = last_step()
    step = step_behind(last, running(last))
    assert step is not None
    assert [(row.start, row.num_tokens, row.slack) for row in step.rows] == [(10, 11, 3), (12, 13, 1)]
    assert step.behind is not None
    assert step.behind[1:] == (PLACES, [0, 1], 3)
    step.place()
    step.batch = step.verify_batch(0, None, None)
    slots = [row.node_slot for row in step.rows]
    last.rows[0].emitted, last.rows[1].emitted = [5, 6, 7], [8]
    step.settle(last, [2, 0])
    assert [(row.start, row.num_tokens) for row in step.rows] == [(12, 13), (12, 13)]
    assert [row.node_slot for row in step.rows] == [slots[0] + 2, slots[1]]
    assert step.batch.num_tokens == [13, 13]
    assert step.behind is None
    assert [row.chunk for row in step.rows] == [1, 1]


def test_a_row_of_which_something_else_was_kept_leaves() -> None:
    last = last_step()
    step = step_behind(last, running(last))
    assert step is not None
    step.batch = step.verify_batch(0, None, None)
    last.rows[0].emitted, last.rows[1].emitted = [5, 6], [8, 9]  # a text ended within its draft
    step.settle(last, [3, 1])
    assert [row.chunk for row in step.rows] == [0, 1]
    assert step.leave([last.rows[1].sequence])


@pytest.mark.parametrize(
    "change",
    [
        lambda step: setattr(step, "is_alone", True),
        lambda step: setattr(
            step,
            "pending",
            AsyncVerdict(step.pending.token_ids, step.pending.num_accepted, step.pending.read),
        ),
        lambda step: setattr(step.rows[1], "chunk", 0),
        lambda step: setattr(step, "sampled", step.rows[:1]),
        lambda step: setattr(step.rows[0].sequence, "max_num_tokens", 14),
    ],
    ids=["read", "elsewhere", "left", "a prompt", "its end"],
)
def test_others_wait(change: Callable[[Step], None]) -> None:
    last = last_step()
    change(last)
    assert step_behind(last, running(last)) is None
    assert step_behind(last_step(), []) is None


def test_a_pass_with_rules_waits_for_the_tokens() -> None:
    last = last_step()
    last.rows[0].sequence.rules = cast(Any, SimpleNamespace(grammar=None))
    step = step_behind(last, running(last))
    assert step is not None
    assert step.waits
    assert not any(needs_tokens_to_draft(row.sequence) for row in step.rows)
    last.rows[0].sequence.rules = cast(Any, SimpleNamespace(grammar=object()))
    assert needs_tokens_to_draft(last.rows[0].sequence)
    last.rows[0].emitted, last.rows[1].emitted = [5, 6], [8]
    step.settle(last, [1, 0])  # before it is launched
    assert [(row.start, row.num_tokens) for row in step.rows] == [(11, 12), (12, 13)]


class Fixed(Proposer):
    """Drafts two nodes for one request, or needs the tokens."""

    name: ClassVar[str] = "fixed"
    needs_tokens = False

    def propose(self, batch: ProposeBatch) -> Draft:
        if self.needs_tokens:
            raise NeedsTokens
        return Draft(torch.tensor([[3, 4]]), num_nodes=(2,))


@pytest.mark.parametrize("is_unread", [False, True])
def test_only_who_is_asked_before_the_verdict_may_need_the_tokens(is_unread: bool) -> None:
    proposer = Fixed(cast(Any, None), cast(Any, None))
    guard = ProposerGuard(proposer, 9, is_fallback=True, is_strict=False)
    batch = ProposeBatch(
        ("a",), [2], [5], [5], [0], [5], np.zeros(5, np.int32), [0], [0], (SamplingParams(),), cast(Draws, None),
        lambda row: np.zeros(5, np.int32), verdict=PLACES, num_unread=[3] * is_unread,
    )  # fmt: skip
    draft = guard.propose(batch, [1])
    assert draft is not None
    assert draft.num_nodes == [1]
    proposer.needs_tokens = True
    if is_unread:
        with pytest.raises(NeedsTokens):
            guard.propose(batch, [1])
    else:
        assert guard.propose(batch, [1]) is None
    assert guard.metrics.proposer_errors == (not is_unread)


@pytest.mark.parametrize("has_run", [False, True])
def test_states_are_found_where_the_next_pass_has_put_them(has_run: bool) -> None:
    """Also if the step raised behind its pass; a pass that did not run has put them nowhere."""
    table = PassMemory(torch.device("cpu"), 0)
    table.states, table.states_before = torch.zeros(2, 8, 3), torch.ones(2, 8, 3)
    scorer, scheduler = cast(Any, SimpleNamespace(pass_memory=table)), cast(Any, SimpleNamespace(running=[]))
    ahead = StepsAhead(scorer, scheduler, None, None)
    step = last_step()
    step.scores = Scores(
        torch.zeros(6, 9), torch.zeros(6, 9), None, table.states[0, :6], (table.states[1, :6],)
    )
    step.pending = None
    assert ahead.make(step, has_ended=False) is None
    table.num_passes += has_run
    ahead.find_states(step)
    assert step.scores.hidden_states is not None
    assert bool(step.scores.hidden_states.all()) == has_run
    assert [bool(states.all()) for states in step.scores.aux_hidden_states] == [has_run]
