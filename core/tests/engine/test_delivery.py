"""States that wait for a proposer."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

from specdec import SamplingParams
from specdec.engine.delivery import Delivery
from specdec.engine.sequence import Sequence

CPU = torch.device("cpu")


def delivery() -> Delivery:
    return Delivery(no_states=(torch.empty(0, 4),) * 2, is_on_device=False, device=CPU)


def sequence(num_tokens: int = 10) -> Sequence:
    made = Sequence(
        "0",
        np.arange(num_tokens, dtype=np.int32),
        SamplingParams(),
        seed=0,
        sample_index=0,
        max_num_tokens=999,
    )
    made.num_computed = 1
    return made


def passed(num_rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    states = torch.arange(num_rows * 4.0).view(num_rows, 4)
    return states, states + 0.5


@pytest.mark.parametrize("rows", [[3], [3, 4, 5], [0, 2, 5], []])
@pytest.mark.parametrize("num_rows", [6, 500])
def test_the_rows_that_are_asked_for_are_kept(rows, num_rows) -> None:
    kept, made = sequence(), passed(num_rows)
    delivery().keep_hidden(kept, made, rows)
    ((hidden, aux),) = kept.deliverable_hidden
    assert torch.equal(hidden, made[0][rows])
    assert torch.equal(aux, made[1][rows])


def test_a_few_rows_do_not_keep_a_long_pass_alive() -> None:
    kept = sequence()
    delivery().keep_hidden(kept, passed(5000), [7, 8])
    assert all(state.untyped_storage().nbytes() == state.nbytes for state in kept.deliverable_hidden[0])


def test_many_steps_are_joined() -> None:
    kept, made = sequence(), delivery()
    for _ in range(100):
        made.keep_hidden(kept, passed(6), [5])
    assert len(kept.deliverable_hidden) < 20
    assert sum(len(states[0]) for states in kept.deliverable_hidden) == 100


def test_states_have_their_shape_where_nothing_is_new() -> None:
    waiting = sequence()
    waiting.num_computed = waiting.num_missing = 0
    batch = delivery().build([waiting], [0])
    assert batch.counts == [0]
    assert [tuple(states.shape) for states in (batch.hidden_states, *batch.aux_hidden_states)] == [
        (0, 4),
        (0, 4),
    ]
    assert (batch.has_hidden.dtype, tuple(batch.has_hidden.shape)) == (torch.bool, (0,))


def waiting(num_tokens: int) -> Sequence:
    """Return a sequence whose proposer has been told nothing, with the states of all its tokens."""
    made = sequence(num_tokens)
    made.deliverable_hidden = [(torch.zeros(num_tokens, 1),)]
    return made


def test_what_gets_no_drafts_is_never_overdue() -> None:
    late, lost = waiting(800), waiting(800)
    lost.has_proposals = False
    assert delivery().is_overdue([late, lost])
    assert not delivery().is_overdue([lost])


def test_states_of_many_sequences_are_overdue_together() -> None:
    some = [waiting(400) for _ in range(6)]
    assert delivery().is_overdue(some)
    assert not delivery().is_overdue(some[:5])
    assert not delivery().is_overdue([*some[:5], sequence(400)])  # nothing of the last has run yet


def test_a_sequence_is_overdue_before_its_next_rows_would_not_be_kept() -> None:
    begun, made = waiting(250), delivery()
    assert not made.is_overdue([begun], [700])
    assert made.is_overdue([begun], [1000])
    assert not made.is_overdue([sequence(900)], [2000])  # one piece may have any length


def test_a_pause_keeps_no_more_states_than_there_is_memory_for(caplog) -> None:
    made, some = delivery(), [waiting(count) for count in (900, 300, 950, 400)]
    with caplog.at_level(logging.WARNING, "specdec"):
        made.limit_waiting(some)
    assert [kept.has_proposals for kept in some] == [True, True, False, True]
    assert made.num_without_states == 1
    assert "states" in caplog.text
    made.limit_waiting(some)
    assert made.num_without_states == 1


def test_what_came_of_a_draft_is_told_once() -> None:
    told, made = sequence(), delivery()
    told.num_computed, told.last_num_drafted, told.last_num_accepted = 0, 4, 1
    told.delivered = told.num_tokens
    first, again = (made.build([told], [0]) for _ in range(2))
    assert (first.last_num_drafted, first.last_num_accepted) == ([4], [1])
    assert (again.last_num_drafted, again.last_num_accepted) == ([0], [0])


def test_each_reason_for_no_drafts_is_logged_once_and_each_request_counted(caplog) -> None:
    made = delivery()
    with caplog.at_level(logging.WARNING, "specdec"):
        for reason in ("it failed", "it failed", "it was left out"):
            lost = sequence()
            made.give_up(lost, reason)
            made.give_up(lost, "whatever else")
    assert made.num_without_states == 3
    assert len(caplog.records) == 2
