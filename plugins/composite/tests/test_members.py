"""What each member is told, and what its failures cost."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from composite_check import batch_of, composite_of, members_of, scripted

from specdec import SamplingParams
from specdec.interfaces import Capability, FinishReason, LeftOut

STATES = (Capability.HIDDEN_STATES,)


def test_verdicts_go_to_the_member_whose_draft_it_was() -> None:
    composite = composite_of("cascade", scripted(7, 8, 9, confidence=[0.9] * 3), scripted(5))
    composite.propose(batch_of([1, 2, 3], 0))
    composite.propose(batch_of([1, 2, 3, 7, 4], 3, last=(3, 1)))
    cheap, dear = members_of(composite)
    assert cheap.judged[-1] == (3, 1)
    assert dear.judged[-1] == (0, 0)


@pytest.mark.parametrize("verdict", [(3, 3), (2, 2), (2, 1), (2, 0)])
def test_a_member_is_told_how_much_of_its_draft_was_scored(verdict: tuple[int, int]) -> None:
    """A grammar may have cut it, and the token that follows may be the one that was cut off."""
    composite = composite_of("longest", scripted(7, 8, 9), scripted(5))
    composite.propose(batch_of([1, 2, 3], 0))
    composite.propose(batch_of([1, 2, 3, *[7, 8, 9][: verdict[1] + 1]], 3, last=verdict))
    composite.propose(batch_of([1, 2, 3, 7, 8, 9, 4][: 5 + verdict[1]], 4 + verdict[1]))  # no verdict
    first, other = members_of(composite)
    assert first.judged == [(0, 0), verdict, (0, 0)]
    assert other.judged == [(0, 0)] * 3


@pytest.mark.parametrize("policy", ["cascade", "longest", "merge", "extend", "choose"])
def test_a_request_may_choose_a_member(policy: str) -> None:
    composite = composite_of(policy, scripted(7, 8, name="first"), scripted(5, name="second"))
    params = SamplingParams(speculative={"method": "second"})
    found = []
    for last in range(3, 8):
        batch = batch_of([1, 2, 3, 4, 5, 6, 7][:last], 0 if last == 3 else last - 1, params=params)
        draft = composite.propose(batch)
        found += [*zip(draft.proposers or (), draft.rows, strict=True)]
    assert ("second", (5,)) in found
    assert {name for name, tokens in found if tokens} == {"second"}
    composite.finish(["a"], FinishReason.STOP)
    assert all(not member._not_chosen for member in composite._members)


def test_members_are_told_from_the_text_what_they_do_not_hold() -> None:
    composite = composite_of("cascade", scripted(7), scripted(5, held=2))
    assert composite.resume("a", np.array([1, 2], np.int32)) == 2  # what one of them holds
    composite.propose(batch_of([1, 2, 3], 2))
    assert [member.heard for member in members_of(composite)] == [[1, 2, 3]] * 2


def test_what_is_forgotten_is_told_again() -> None:
    composite = composite_of("longest", scripted(7), scripted(5))
    composite.propose(batch_of([1, 2, 3], 0))
    composite.finish(["a"], FinishReason.ERROR)
    composite.propose(batch_of([1, 2, 3, 4], 0))
    assert [member.heard for member in members_of(composite)] == [[1, 2, 3, 4]] * 2


def test_a_model_is_told_only_when_it_drafts() -> None:
    """A head that another member replaces costs nothing; it gets all that it missed, states too."""
    composite = composite_of("cascade", scripted(7, 8, confidence=[1.0, 1.0]), scripted(5, needs=STATES))
    cheap, head = members_of(composite)
    composite.propose(batch_of([1, 2, 3], 0, states=True))
    composite.propose(batch_of([1, 2, 3, 7, 4], 3, states=True))
    assert (cheap.heard, head.asked) == ([1, 2, 3, 7, 4], [])
    cheap.tokens = ()
    draft = composite.propose(batch_of([1, 2, 3, 7, 4, 6], 5, states=True))
    assert draft.rows == ((5,),)
    assert head.heard == [1, 2, 3, 7, 4, 6]
    assert head.states == [1.0, 2.0, 3.0, 7.0, 4.0, 6.0]


def test_states_that_wait_are_cut_where_the_text_is_delivered_again() -> None:
    composite = composite_of("cascade", scripted(7, 8, confidence=[1.0, 1.0]), scripted(5, needs=STATES))
    cheap, head = members_of(composite)
    composite.propose(batch_of([1, 2, 3], 0, states=True))
    composite.propose(batch_of([1, 2, 9, 4], 2, states=True))
    cheap.tokens = ()
    composite.propose(batch_of([1, 2, 9, 4, 6], 4, states=True))
    assert head.heard == [1, 2, 9, 4, 6]
    assert head.states == [1.0, 2.0, 9.0, 4.0, 6.0]


def test_a_model_is_told_before_too_many_states_wait() -> None:
    composite = composite_of("cascade", scripted(7, 8, confidence=[1.0, 1.0]), scripted(5, needs=STATES))
    _, head = members_of(composite)
    text = [1, 2] * 600
    composite.propose(batch_of(text, 0, states=True))
    assert head.asked == [0]
    assert head.heard == text


@pytest.mark.parametrize(("is_awaited", "missed"), [(True, 1100), (False, 1)])
def test_what_waits_for_a_model_that_is_not_in_use_is_let_go(monkeypatch, is_awaited, missed) -> None:
    composite = composite_of("cascade", scripted(7, 8, confidence=[1.0, 1.0]), scripted(5, needs=STATES))
    monkeypatch.setattr(composite._policy, "waits_for", lambda number: is_awaited)
    cheap, head = members_of(composite)
    text = [1, 2]
    composite.propose(batch_of(text, 0, states=True))
    for _ in range(64):
        text = [*text, 3]
        composite.propose(batch_of(text, len(text) - 1, states=True))
    text = [*text, *[4] * missed]
    composite.propose(batch_of(text, len(text) - missed, states=True))
    assert head.asked == []
    cheap.tokens = ()
    assert composite.propose(batch_of([*text, 6], len(text), states=True)).rows == ((),)
    assert head.heard == []
    assert composite.propose(batch_of([1, 2, 6], 0, states=True)).rows == ((5,),)  # delivered from the start
    assert head.heard == [1, 2, 6]


def test_a_prefix_is_resumed_as_far_as_all_readers_of_states_hold_it() -> None:
    """States come once: what one of them lacks has to be computed again, whoever holds more."""
    first, second, listener = (
        scripted(7, needs=STATES, held=3),
        scripted(8, needs=STATES, held=1),
        scripted(9, held=4),
    )
    text = np.arange(5, dtype=np.int32)
    assert composite_of("longest", first, second, listener).resume("a", text) == 1
    assert composite_of("longest", second, first, listener).resume("a", text) == 1
    assert composite_of("longest", listener, first).resume("a", text) == 3


def test_no_states_are_computed_again_for_a_member_that_does_not_pay(monkeypatch) -> None:
    composite = composite_of("longest", scripted(7, 8, needs=STATES, held=1), scripted(5, held=4))
    head, listener = members_of(composite)
    assert composite.resume("a", np.arange(4, dtype=np.int32)) == 1
    monkeypatch.setattr(composite._policy, "pays", lambda number: False)
    assert composite.resume("a", np.arange(4, dtype=np.int32)) == 4
    assert composite.propose(batch_of([0, 1, 2, 3, 4], 4, states=True)).rows == ((5,),)
    assert head.heard == []
    assert listener.heard == [0, 1, 2, 3, 4]
    composite.propose(
        batch_of([0, 1, 2, 3, 4], 0, states=True)
    )  # delivered from the start, as after a preemption
    assert head.heard == [0, 1, 2, 3, 4]


def test_finish_drops_a_request_everywhere() -> None:
    composite = composite_of("longest", scripted(7), scripted(5))
    composite.propose(batch_of([1, 2, 3], 0))
    composite.finish(["a"], FinishReason.LENGTH)
    assert [member.heard for member in members_of(composite)] == [[], []]
    assert all(
        member._inbox._num_delivered == member._verified == member._feedback == {}
        for member in composite._members
    )


@pytest.mark.parametrize("error", [KeyError("lost"), SystemExit(1)])
def test_a_member_whose_finish_raises_keeps_no_request_alive_in_the_others(error: BaseException) -> None:
    composite = composite_of(
        "longest", scripted(7, error_in_finish=error), scripted(5), on_proposer_error="raise"
    )
    composite.propose(batch_of([1, 2, 3], 0))
    with pytest.raises(type(error)):
        composite.finish(["a"], FinishReason.LENGTH)
    assert members_of(composite)[1].heard == []


@pytest.mark.parametrize("error", [KeyError("lost"), SystemExit(1)])
def test_a_member_that_raises_costs_its_own_drafts_only(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    composite = composite_of("longest", scripted(7, 8, name="bad", error=error), scripted(5))
    bad, _ = members_of(composite)
    with caplog.at_level(logging.WARNING, "specdec"):
        draft = composite.propose(batch_of([1, 2, 3], 0))
    assert (draft.rows, draft.proposers) == (((5,),), ("scripted",))
    assert composite.num_contained == 1
    assert "'bad' raised" in caplog.text
    bad.error = None
    assert composite.propose(batch_of([1, 2, 3, 4], 3)).rows == ((7, 8),)
    assert bad.heard == [1, 2, 3, 4]


def test_a_member_that_raises_again_and_again_is_left_out_for_a_while() -> None:
    composite = composite_of("longest", scripted(7, 8, error=KeyError("lost")), scripted(5))
    bad, good = members_of(composite)
    text = [1, 2, 3]
    for _ in range(3):
        composite.propose(batch_of(text, 0))
        text = [*text, 4]
    bad.error = None
    for _ in range(64):
        assert composite.propose(batch_of(text, 0)).rows == ((5,),)
    assert composite.propose(batch_of(text, 0)).rows == ((7, 8),)
    assert composite.num_contained == 3
    assert good.heard == bad.heard == text


def test_a_reader_of_states_that_failed_drafts_again_once_they_come_from_the_start() -> None:
    head = scripted(7, 8, needs=STATES)
    composite = composite_of("longest", head, scripted(5))
    made, _ = members_of(composite)
    composite.propose(batch_of([1, 2, 3], 0, states=True))
    made.error = ValueError("once")
    composite.propose(batch_of([1, 2, 3, 4], 3, states=True))
    made.error = None
    assert composite.propose(batch_of([1, 2, 3, 4, 6], 4, states=True)).rows == ((5,),)
    assert made.heard == []
    draft = composite.propose(batch_of([1, 2, 3, 4, 6, 7], 0, states=True))
    assert draft.rows == ((7, 8),)
    assert made.heard == [1, 2, 3, 4, 6, 7]


def test_errors_are_raised_where_that_is_configured() -> None:
    composite = composite_of(
        "longest", scripted(7, error=KeyError("lost")), scripted(5), on_proposer_error="raise"
    )
    with pytest.raises(KeyError, match="lost"):
        composite.propose(batch_of([1, 2, 3], 0))


def test_a_malformed_draft_is_cut_before_a_policy_sees_it() -> None:
    composite = composite_of("longest", scripted(7, 99, 8), scripted(5, 6))
    draft: Any = composite.propose(batch_of([1, 2, 3], 0))
    assert draft.rows == ((5, 6),)


def test_a_member_that_lost_states_asks_for_them_once_it_can_draft(monkeypatch) -> None:
    composite = composite_of("longest", scripted(7, name="words"), scripted(5, 6, name="head", needs=STATES))
    _, head = members_of(composite)
    assert composite.propose(batch_of([1, 2, 3], 0, states=True)).rows == ((5, 6),)
    assert composite.left_out == {}
    head.error = RuntimeError("no")
    assert composite.propose(batch_of([1, 2, 3, 4], 3, states=True)).rows == ((7,),)
    head.error = None
    assert composite.propose(batch_of([1, 2, 3, 4, 5], 4, states=True)).rows == ((7,),)
    assert composite.left_out["a"].can_return
    assert composite.left_out["a"].reason.startswith("head: it failed")
    monkeypatch.setattr(composite._members[1].guard, "pause_left", 5)
    composite.propose(batch_of([1, 2, 3, 4, 5, 6], 5, states=True))
    assert not composite.left_out["a"].can_return, "it would be left out again"
    monkeypatch.setattr(composite._members[1].guard, "pause_left", 0)
    monkeypatch.setattr(composite._policy, "pays", lambda number: number == 0)
    composite.propose(batch_of([1, 2, 3, 4, 5, 6, 7], 6, states=True))
    assert not composite.left_out["a"].can_return, "nobody would use it"
    monkeypatch.undo()
    assert composite.resume("a", np.arange(1, 8, dtype=np.int32)) == 0
    assert composite.propose(batch_of([1, 2, 3, 4, 5, 6, 7], 0, states=True)).rows == ((5, 6),)
    assert composite.left_out == {}


def test_whom_a_member_has_no_room_for_is_told_until_it_is_asked_to_resume() -> None:
    composite = composite_of("longest", scripted(7, name="words"), scripted(5, name="head", needs=STATES))
    _, head = members_of(composite)
    head.left_out = {"a": LeftOut("it is full", can_return=True)}
    composite.propose(batch_of([1, 2, 3], 0, states=True))
    assert composite.left_out == {"a": LeftOut("head: it is full", can_return=True)}
    head.left_out = {}
    composite.resume("a", np.arange(1, 4, dtype=np.int32))
    assert composite._members[1].left_out(pays=True) == {}


def test_drafts_are_longer_where_they_are_late_and_all_members_can_be() -> None:
    late = [Capability.LATE_DRAFTS]
    composite = composite_of("longest", scripted(7, needs=late), scripted(*range(3, 12), needs=late), k=2)
    assert composite.capabilities == {*late}
    assert composite.propose(batch_of([1, 2, 3], 0, most=7)).rows == ((3, 4, 5, 6, 7, 8, 9),)
    assert [member.asked for member in members_of(composite)] == [[7], [7]]
    assert not composite_of("longest", scripted(7, needs=late), scripted(5)).capabilities


def test_a_member_with_a_smaller_k_stays_behind_in_late_drafts_too() -> None:
    composite = composite_of("longest", *[scripted(*range(3, 12), needs=[Capability.LATE_DRAFTS])] * 2, k=3)
    composite._members[0].most_nodes = 1
    composite.propose(batch_of([1, 2, 3], 0, most=7))
    assert [member.asked for member in members_of(composite)] == [[5], [7]]
