"""States that wait for a proposer."""

from __future__ import annotations

import ctypes
import logging
import threading
import time

import numpy as np
import pytest
import torch

from specdec import SamplingParams
from specdec.engine.sequence import Sequence
from specdec.engine.speculation.delivery import Delivery
from specdec.logits.rules import RequestRules

CPU = torch.device("cpu")


def delivery() -> Delivery:
    return Delivery(no_states=(torch.empty(0, 4),) * 2, device=CPU)


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
    kept, made, delivered = sequence(), passed(num_rows), delivery()
    delivered.keep_hidden(kept, made, rows)
    hidden, aux = (torch.cat(kind) for kind in zip(*kept.deliverable_hidden, strict=True))
    assert torch.equal(hidden, made[0][rows])
    assert torch.equal(aux, made[1][rows])


def test_states_that_wait_longer_than_a_step_are_copied() -> None:
    kept, made, states = sequence(), delivery(), passed(6)
    made.keep_hidden(kept, states, [1, 2, 4])
    expected = [tuple(state.clone() for state in piece) for piece in kept.deliverable_hidden]
    made.copy_states([kept])
    owned = [piece[0].data_ptr() for piece in kept.deliverable_hidden]
    made.copy_states([kept])
    assert [piece[0].data_ptr() for piece in kept.deliverable_hidden] == owned, "once"
    for state in states:
        state.zero_()
    for piece, wanted in zip(kept.deliverable_hidden, expected, strict=True):
        assert all(torch.equal(state, other) for state, other in zip(piece, wanted, strict=True))


def test_many_steps_are_joined() -> None:
    kept, made = sequence(), delivery()
    for _ in range(100):
        made.keep_hidden(kept, passed(6), [5])
        kept.num_computed += 1
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
    assert made._metrics.requests_left_out == 1
    assert "states" in caplog.text
    made.limit_waiting(some)
    assert made._metrics.requests_left_out == 1


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
    assert made._metrics.requests_left_out == 3
    assert len(caplog.records) == 2


def test_a_batch_shares_no_memory_with_the_engine() -> None:
    kept, made, states = sequence(), delivery(), passed(6)
    kept.num_computed, params = 0, SamplingParams(stop_token_ids=[4], logit_bias={1: 2.0})
    kept = Sequence("0", kept.token_ids, params, seed=0, sample_index=0, max_num_tokens=99)
    made.keep_hidden(kept, states, [0, 1, 2])
    batch = made.build([kept], [0])
    assert not np.shares_memory(batch.token_ids(0), kept.token_ids)
    assert not np.shares_memory(batch.new_token_ids, kept.token_ids)
    assert all(h.untyped_storage().data_ptr() not in [s.untyped_storage().data_ptr() for s in states]
               for h in (batch.hidden_states, *batch.aux_hidden_states))  # fmt: skip
    batch.sampling_params[0].stop_token_ids.append(9)
    batch.sampling_params[0].logit_bias.clear()
    assert (params.stop_token_ids, params.logit_bias) == ([4], {1: 2.0})


def test_new_tokens_alone_are_copied() -> None:
    """What a step costs does not grow with the text: the proposer's copy is extended."""
    kept, made = sequence(500), Delivery(no_states=(), device=CPU)
    batch = made.build([kept], [0])
    theirs = batch.token_ids(0)
    ctypes.memset(theirs.ctypes.data, 0, theirs.nbytes)  # its own loss
    kept.append([5, 6], 0)
    batch = made.build([kept], [0])
    assert batch.new_token_ids.tolist() == [5, 6]
    assert batch.token_ids(0).tolist() == [0] * 500 + [5, 6]
    assert kept.token_ids.tolist() == [*range(500), 5, 6]
    made.forget(kept)
    assert made.build([kept], [0]).token_ids(0).tolist() == [*range(500), 5, 6]


class Alone:
    """A grammar that notices two threads in it."""

    def __init__(self) -> None:
        self.num_inside = self.most_inside = 0

    def begin(self) -> Alone:
        return self

    def mask_after(self, path: list[int]) -> torch.Tensor:
        self.num_inside += 1
        self.most_inside = max(self.most_inside, self.num_inside)
        time.sleep(0.01)
        self.num_inside -= 1
        return torch.zeros(1, dtype=torch.int32)


def test_threads_that_ask_a_grammar_wait_for_each_other() -> None:
    kept, grammar = sequence(), Alone()
    kept.rules = RequestRules([], grammar)  # type: ignore[arg-type]
    batch = Delivery(no_states=(), device=CPU).build([kept], [0])
    threads = [threading.Thread(target=batch.allowed, args=(0, [1])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert grammar.most_inside == 1
