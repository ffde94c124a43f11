"""Which member drafts, and what each of them is told."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from specdec.interfaces import Capability, Draft, FinishReason, ProposeBatch
from specdec_plugin_cascade.asked import Asked, _offers
from specdec_plugin_cascade.proposer import CascadeProposer


class Scripted:
    """A member that says what it is told to say, and keeps what it was told."""

    name = "scripted"
    capabilities: frozenset[Any] = frozenset()
    aux_layer_ids = ()

    def __init__(self, tokens: list[int], confidence: list[float] | None = None) -> None:
        self.tokens, self.confidence = tokens, confidence
        self.heard: list[int] = []
        self.asked: list[int] = []
        self.held = 0
        self.judged: list[tuple[int, int]] = []

    def propose(self, batch: ProposeBatch) -> Draft:
        (start,), (most,) = batch.starts, batch.max_nodes
        assert start <= len(self.heard)
        self.heard[start:] = batch.new_token_ids.tolist()
        self.asked.append(most)
        self.judged.append((batch.last_num_drafted[0], batch.last_num_accepted[0]))
        row = self.tokens[:most]
        return Draft.from_lists(
            [row], confidence=None if self.confidence is None else [self.confidence[: len(row)]]
        )

    def resume(self, request_id: str, token_ids: Any) -> int:
        return self.held

    def finish(self, request_ids: Any, reason: FinishReason) -> None:
        self.heard.clear()


def cascade_of(*members: Scripted) -> CascadeProposer:
    cascade = object.__new__(CascadeProposer)
    cascade.capabilities = frozenset()
    cascade._enough = 2.0
    cascade._members = [Asked(member, 4, ()) for member in members]  # type: ignore[arg-type]  # as a proposer
    return cascade


def batch_of(text: list[int], start: int, last: tuple[int, int] = (0, 0), most: int = 8) -> ProposeBatch:
    new = np.array(text[start:], np.int32)
    return ProposeBatch(
        ("a",), [most], [len(text)], [2], [start], [len(new)], new, [last[0]], [last[1]],
        (SimpleNamespace(),), None, lambda row: np.array(text, np.int32),
    )  # type: ignore[arg-type]  # fmt: skip


def test_a_confident_cheap_draft_is_taken_and_the_other_only_listens() -> None:
    cheap, dear = Scripted([7, 8, 9], [0.9, 0.9, 0.9]), Scripted([5])
    draft = cascade_of(cheap, dear).propose(batch_of([1, 2, 3], 0))
    assert draft.rows == ((7, 8, 9),)
    assert (cheap.asked, dear.asked) == ([4], [0])
    assert cheap.heard == dear.heard == [1, 2, 3]


def test_an_unsure_cheap_draft_goes_only_where_no_other_comes() -> None:
    cheap, dear = Scripted([7, 8], [0.9, 0.9]), Scripted([5, 6])
    draft = cascade_of(cheap, dear).propose(batch_of([1, 2, 3], 0))
    assert draft.rows == ((5, 6),)
    assert dear.asked == [4]
    assert cascade_of(cheap, Scripted([])).propose(batch_of([1, 2, 3], 0)).rows == ((7, 8),)


def test_a_draft_says_who_made_it() -> None:
    cheap, dear = Scripted([7, 8], [0.9, 0.9]), Scripted([5, 6])
    cheap.name, dear.name = "cheap", "dear"
    assert cascade_of(cheap, dear).propose(batch_of([1, 2, 3], 0)).proposers == ("dear",)
    cheap.tokens, cheap.confidence = [7, 8, 9], [0.9, 0.9, 0.9]
    assert cascade_of(cheap, dear).propose(batch_of([1, 2, 3], 0)).proposers == ("cheap",)
    (offer,) = _offers(replace(Draft.from_lists([[7]]), proposers=("inner",)))
    assert offer is not None
    assert offer.proposer == "inner"
    assert cascade_of(Scripted([])).propose(batch_of([1, 2, 3], 0)).proposers == ("",)


def test_drafts_without_confidence_promise_all_their_tokens() -> None:
    dear = Scripted([5, 6])
    assert cascade_of(Scripted([7, 8]), dear).propose(batch_of([1, 2, 3], 0)).rows == ((7, 8),)
    assert dear.asked == [0]
    assert cascade_of(Scripted([7]), dear).propose(batch_of([1, 2, 3], 0)).rows == ((5, 6),)


def test_a_promise_of_a_tree_is_the_sum_over_its_paths() -> None:
    tree = Draft.from_lists([[7, 8, 9]], [[-1, -1, 0]], confidence=[[0.5, 0.25, 0.5]])
    (offer,) = _offers(tree)
    assert offer is not None
    assert offer.promise == pytest.approx(0.5 + 0.25 + 0.25)


def test_verdicts_go_to_the_member_whose_draft_it_was() -> None:
    cheap, dear = Scripted([7, 8, 9], [0.9, 0.9, 0.9]), Scripted([5])
    cascade = cascade_of(cheap, dear)
    cascade.propose(batch_of([1, 2, 3], 0))
    cascade.propose(batch_of([1, 2, 3, 7, 4], 3, last=(3, 1)))
    assert cheap.judged[-1] == (3, 1)
    assert dear.judged[-1] == (0, 0)


def test_members_are_told_from_the_text_what_they_do_not_hold() -> None:
    cheap, dear = Scripted([7]), Scripted([5])
    cascade = cascade_of(cheap, dear)
    dear.held, dear.heard = 2, [1, 2]
    assert cascade.resume("a", np.array([1, 2], np.int32)) == 2  # what one of them holds
    cascade.propose(batch_of([1, 2, 3], 2))
    assert cheap.heard == dear.heard == [1, 2, 3]


def test_what_is_forgotten_is_told_again() -> None:
    member, other = Scripted([7]), Scripted([5])
    cascade = cascade_of(member, other)
    cascade.propose(batch_of([1, 2, 3], 0))
    cascade.finish(["a"], FinishReason.ERROR)
    cascade.propose(batch_of([1, 2, 3, 4], 0))
    assert member.heard == other.heard == [1, 2, 3, 4]


def reader(*tokens: int) -> Scripted:
    made = Scripted(list(tokens))
    made.capabilities = frozenset({Capability.HIDDEN_STATES})
    return made


def test_a_prefix_is_resumed_as_far_as_all_readers_of_states_hold_it() -> None:
    """States come once: what one of them lacks has to be computed again, whoever holds more."""
    first, second, listener = reader(7), reader(8), Scripted([9])
    first.held, second.held, listener.held = 3, 1, 4
    assert cascade_of(first, second, listener).resume("a", np.arange(5, dtype=np.int32)) == 1
    assert cascade_of(second, first, listener).resume("a", np.arange(5, dtype=np.int32)) == 1
    assert cascade_of(listener, first).resume("a", np.arange(5, dtype=np.int32)) == 3


def test_finish_drops_a_request_in_every_member_and_in_the_books_of_the_cascade() -> None:
    members = [Scripted([7]), Scripted([5])]
    cascade = cascade_of(*members)
    cascade.propose(batch_of([1, 2, 3], 0))
    assert all(asked._held == {"a": 3} and asked._drafted.keys() == {"a"} for asked in cascade._members)
    cascade.finish(["a"], FinishReason.LENGTH)
    assert all(asked._held == asked._drafted == {} for asked in cascade._members)
    assert [member.heard for member in members] == [[], []]


@pytest.mark.parametrize("error", [KeyError("lost"), SystemExit(1)])
def test_a_member_whose_finish_raises_keeps_no_request_alive_in_the_others(error: BaseException) -> None:
    def failing(request_ids: Any, reason: FinishReason) -> None:
        raise error

    members = [Scripted([7]), Scripted([5])]
    cascade = cascade_of(*members)
    cascade.propose(batch_of([1, 2, 3], 0))
    members[0].finish = failing  # type: ignore[method-assign]
    with pytest.raises(type(error)):
        cascade.finish(["a"], FinishReason.LENGTH)
    assert members[1].heard == []
    assert all(asked._held == {} for asked in cascade._members)
