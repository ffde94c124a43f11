"""Requests of heads and models in a cache: rows by stage, steps back, acceptance, prefixes, little room."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import nn

from specdec.interfaces import NeedsTokens, ProposeBatch
from specdec_runtime.drafting import DraftVocabulary, equal_vocabulary
from specdec_runtime.drafting.request_rows import RequestRows
from specdec_runtime.interfaces import DraftHead, KVCache, LayerShape, Runner

BLOCK = 16
CPU = torch.device("cpu")
SAME = equal_vocabulary(100, 100, CPU)
# Id 3 of the target is two of the draft's, all others are one.
SPLIT = DraftVocabulary(np.arange(8), np.arange(8), [[i] if i != 3 else [8, 9] for i in range(8)], 8, CPU)
TEXT = np.arange(48, dtype=np.int32)


def rows_of(
    num_blocks: int,
    num_stages: int = 1,
    *,
    is_model: bool = False,
    vocabulary: DraftVocabulary = SAME,
    are_states_alone: bool = False,
) -> RequestRows:
    """Rows of a head or model, in a cache of so many blocks."""
    cache = KVCache(num_blocks * BLOCK, CPU)
    module = nn.Identity() if is_model else Mock(DraftHead, num_stages=num_stages, feature_size=2)
    runner = cast(Runner, SimpleNamespace(module=module, dtype=torch.float32, cache=cache, states=None))
    rows = RequestRows(runner, vocabulary, BLOCK, 1000, are_states_alone=are_states_alone)
    cache.allocate(0, LayerShape(1, 4, 4, torch.float32))
    return rows


def new(request_id: str, text: Any, start: int = 0, max_nodes: int = 3) -> ProposeBatch:
    """A step that brings a request's tokens from `start` on."""
    batch: Any = SimpleNamespace(
        request_ids=(request_id,),
        starts=[start],
        counts=[len(text) - start],
        num_tokens=[len(text)],
        max_nodes=[max_nodes],
        last_num_accepted=[0],
        last_draft_at=[0],
        token_ids=lambda row: np.asarray(text, np.int32),
    )
    return cast(ProposeBatch, batch)


def take(rows: RequestRows, request_id: str, text: Any, start: int = 0) -> list[list[int]]:
    """Run a step; returns the ids that each stage ran. The carry of row i of stage s is `[s, i]`."""
    batch = new(request_id, text, start)
    ids = rows.update(batch, 0, 0)
    assert ids is not None
    row_chunk, ran = rows.append(batch, 0, ids), []
    state = rows.states[request_id]
    state.logits = torch.zeros(1, 4)
    for stage in range(rows.num_stages):
        ran.append(row_chunk.ids.tolist())
        places = range(row_chunk.num_cached, row_chunk.num_cached + len(row_chunk.ids))
        carries = torch.tensor([[stage, i] for i in places], dtype=torch.float32).reshape(-1, 2)
        if stage and row_chunk.features is not None:
            # Each token has the carry of the stage before at the token before it.
            assert row_chunk.features.tolist() == [[stage - 1, i] for i in places]
        further = rows.keep(state, stage, row_chunk, carries)
        if further is None:
            break
        row_chunk = further
    return ran


def held(rows: RequestRows, request_id: str = "a") -> list[int]:
    return [rows.num_rows(rows.states[request_id], stage) for stage in range(rows.num_stages)]


def test_rows_of_states_alone_are_drafted_from_without_logits() -> None:
    rows = rows_of(8, is_model=True, are_states_alone=True)
    batch = new("a", TEXT[:4])
    ids = rows.update(batch, 0, 3)
    assert ids is not None
    row_chunk = rows.append(batch, 0, ids)
    assert (row_chunk.ids.tolist(), row_chunk.num_cached) == (
        [1, 2, 3],
        0,
    )  # one state for each token but the first
    again = new("a", TEXT[:4], 4)  # a draft, and no new token
    ids = rows.update(again, 0, 3)
    assert ids is not None
    row_chunk = rows.append(again, 0, ids)
    assert (row_chunk.ids.tolist(), row_chunk.num_cached) == ([], 3)
    assert rows.update(new("b", TEXT[:9], 5), 0, 3) is None  # states were missed
    assert list(rows.states) == ["a"]


def behind(text: Any, num_unread: int, start: int) -> ProposeBatch:
    """A step behind a verdict that the host has not read."""
    batch: Any = new("a", text, start)
    batch.num_unread = [num_unread]
    return cast(ProposeBatch, batch)


@pytest.mark.parametrize("is_model", [False, True])
@pytest.mark.parametrize(
    ("num_tokens", "num_accepted", "rest"),
    [(9, 1, 7), (10, 1, 7), (7, 2, 4)],
    ids=["its draft was verified", "a step without a draft followed", "the step waited"],
)
def test_what_a_loop_ran_ahead_is_not_run_again(
    is_model: bool, num_tokens: int, num_accepted: int, rest: int
) -> None:
    """A verdict emits tokens 4, 5 and 6, behind which a loop drafts two; the next one emits 7 and 8."""
    rows = rows_of(8, is_model=is_model)
    take(rows, "a", TEXT[:4])
    step = behind(TEXT[:4], 4, 4)
    assert rows.places_behind(step, 3) == ([0], [4 if is_model else 3])
    rows.go_ahead(step)
    rows.keep_drafted(rows.states["a"], [None, None])
    batch = new("a", TEXT[:num_tokens], 4)
    batch.last_num_accepted[0], batch.last_draft_at[0] = num_accepted, rest
    ids = rows.update(batch, 0, 3)
    assert ids is not None
    # A model keeps the rows of accepted tokens.
    first = rest + (num_accepted if is_model else 0)
    assert rows.append(batch, 0, ids).ids.tolist() == [*range(first, num_tokens)]
    assert not rows.states["a"].is_ahead


@pytest.mark.parametrize("case", ["no room", "unknown", "without rows"])
def test_who_would_move_or_is_new_waits_for_the_verdict(case: str) -> None:
    rows = rows_of(2)
    if case != "unknown":
        take(rows, "a", TEXT[:4])
    if case == "without rows":  # as where the states of a prompt's first chunk are all that it was told
        rows.pool.release("a")
    with pytest.raises(NeedsTokens):
        rows.places_behind(behind(TEXT[:4], 4, 4), 30)


def test_each_further_stage_has_a_row_less() -> None:
    rows = rows_of(8, 3)
    assert take(rows, "a", TEXT[:4]) == [[1, 2, 3], [2, 3], [3]]
    assert take(rows, "a", TEXT[:9], 4) == [[4, 5, 6, 7, 8]] * 3
    assert held(rows) == [8, 7, 6]


def test_the_first_token_of_a_head_has_no_row() -> None:
    rows = rows_of(8, 2)
    assert take(rows, "a", TEXT[:1]) == [[]]
    assert take(rows, "a", TEXT[:2], 1) == [[1]]
    assert take(rows, "a", TEXT[:3], 2) == [[2], [2]]
    assert held(rows) == [2, 1]


def test_a_step_back_keeps_the_rows_before_it() -> None:
    rows = rows_of(8, 3)
    take(rows, "a", TEXT[:9])
    assert take(rows, "a", TEXT[:6], 4) == [[4, 5]] * 3
    assert held(rows) == [5, 4, 3]
    assert take(rows, "a", TEXT[:2], 0) == [[1]]
    assert held(rows) == [1, 0, 0]


def test_a_step_back_forgets_logits() -> None:
    rows = rows_of(8)
    take(rows, "a", TEXT[:9])
    assert rows.update(new("a", TEXT[:9], 9), 0, 0) is not None  # a draft without new tokens
    assert rows.update(new("a", TEXT[:4], 4), 0, 0) is None
    assert rows.states["a"].logits is None


def test_a_head_that_missed_tokens_rests_until_they_are_delivered_again() -> None:
    rows = rows_of(8)
    take(rows, "a", TEXT[:9])
    assert rows.update(new("a", TEXT[:12], 10), 0, 0) is None
    assert rows.update(new("a", TEXT[:13], 12), 0, 0) is None
    assert take(rows, "a", TEXT[:13]) == [TEXT[1:13].tolist()]


def test_an_earlier_start_of_a_model_forgets_from_there_even_what_is_equal() -> None:
    rows = rows_of(8, is_model=True, vocabulary=SPLIT)
    assert take(rows, "a", [3, 1, 2]) == [[8, 9, 1, 2]]
    rows.keep_drafted(rows.states["a"], [2])
    assert take(rows, "a", [3, 1, 2, 2, 5], 3) == [[5]]
    assert held(rows) == [6]
    rows.keep_drafted(rows.states["a"], [6])
    assert take(rows, "a", [3, 1, 2, 2, 5], 1) == [[1, 2, 2, 5]]
    assert SPLIT.to_draft(np.array([3, 1, 3], np.int32)).tolist() == [8, 9, 1, 8, 9]
    assert SPLIT.num_draft_ids(np.array([3, 1, 3], np.int32)) == 5
    assert SPLIT.to_draft(np.array([], np.int32)).tolist() == []


def test_a_model_takes_many_tokens_at_once_where_it_has_not_to_draft() -> None:
    rows = rows_of(80, is_model=True)
    text = np.arange(70) % 50
    assert rows.update(new("a", text[:63], 0, max_nodes=0), 0, 0) is None
    assert rows.update(new("a", text[:64], 63, max_nodes=0), 0, 0) is not None
    assert rows.update(new("b", text[:2], 0), 0, 0) is not None


def test_a_model_without_logits_runs_its_last_token_again() -> None:
    rows = rows_of(8, is_model=True)
    take(rows, "a", TEXT[:9])
    rows.states["a"].logits = None
    assert take(rows, "a", TEXT[:9], 9) == [[8]]
    assert held(rows) == [9]


def test_a_cached_prefix_without_room_is_delivered_again_and_gets_room() -> None:
    rows = rows_of(4)
    take(rows, "first", TEXT)
    rows.publish(new("first", TEXT), 0)
    # Three of four blocks belong to a request that does not run now.
    assert rows.resume("second", TEXT[:32]) == 0
    assert rows.update(new("second", TEXT[:32]), 0, 0) is not None
    assert "first" not in rows.states


def test_a_cached_prefix_with_room_is_held() -> None:
    for num_stages in (1, 2):
        rows = rows_of(8, num_stages)
        take(rows, "first", TEXT)
        rows.publish(new("first", TEXT), 0)
        assert rows.resume("second", TEXT[:32]) == 32
        assert take(rows, "second", TEXT[:34], 32) == [[32, 33]] * num_stages


def test_one_that_is_too_long_rests_at_once() -> None:
    rows, text = rows_of(8), np.arange(1001) % 50
    assert rows.resume("long", text[:1000].astype(np.int32)) == 1000
    assert rows.update(new("long", text, 1000), 0, 0) is None


def beside(rows: RequestRows, *batches: tuple[str, Any, int]) -> ProposeBatch:
    """A step of several requests, each with its text and the position of the first new token; every one is updated."""
    batch: Any = SimpleNamespace(
        request_ids=tuple(name for name, _, _ in batches),
        starts=[start for _, _, start in batches],
        counts=[len(text) - start for _, text, start in batches],
        num_tokens=[len(text) for _, text, _ in batches],
        max_nodes=[3] * len(batches),
        last_num_accepted=[0] * len(batches),
        token_ids=lambda row: np.asarray(batches[row][1], np.int32),
    )
    for row in range(len(batches)):
        ids = rows.update(batch, row, 3)
        if ids is not None:
            rows.append(batch, row, ids)
    return cast(ProposeBatch, batch)


def test_a_head_without_room_says_so_and_when_there_is_some() -> None:
    rows = rows_of(7)
    beside(rows, ("a", TEXT, 0), ("b", TEXT, 0))
    [(name, why)] = rows.left_out.items()
    assert (name, why.can_return) == ("b", False)
    assert "no room" in why.reason
    beside(rows, ("a", [*TEXT, 1], 48), ("b", [*TEXT, 1], 48))
    assert rows.left_out["b"] == why, "the first reason stands"
    rows.drop("a")
    beside(rows, ("b", [*TEXT, 1, 2], 49))
    assert rows.left_out["b"].can_return
    beside(rows, ("b", [*TEXT, 1, 2], 0))
    assert rows.left_out == {}
    assert held(rows, "b") == [49]


def test_one_that_returns_has_room_to_grow_beside_others() -> None:
    rows = rows_of(9)
    beside(rows, ("a", TEXT[:20], 0), ("b", TEXT, 0), ("c", TEXT, 0))
    assert not rows.left_out["c"].can_return
    rows.drop("b")  # now 7 of 9 blocks are free, and c needs 4 for its text and 4 to stay
    assert not rows.left_out["c"].can_return
    rows.drop("a")
    assert rows.left_out["c"].can_return


def test_a_head_that_lacks_states_says_so_and_one_that_is_too_long() -> None:
    rows = rows_of(80)
    beside(rows, ("a", TEXT, 4))
    assert rows.left_out["a"].can_return
    assert "states" in rows.left_out["a"].reason
    long = np.zeros(1000, np.int32)
    beside(rows, ("a", long, 990))
    assert not rows.left_out["a"].can_return, "it would be left out again"
    assert "max_model_len" in rows.left_out["a"].reason
    rows.drop("a")
    assert rows.left_out == {}


def test_a_model_returns_by_itself_and_into_scattered_room() -> None:
    rows = rows_of(8, is_model=True)
    beside(rows, ("a", TEXT[:28], 0), ("b", TEXT[:28], 0), ("c", TEXT[:28], 0), ("d", TEXT[:28], 0))
    beside(rows, ("e", TEXT, 0), *((name, [*TEXT[:28], 1], 28) for name in "abcd"))
    assert [*rows.left_out] == ["e"]
    assert not rows.left_out["e"].can_return
    rows.drop("a")
    rows.drop("c")
    beside(rows, ("b", [*TEXT[:28], 1], 29), ("e", TEXT, 48), ("d", [*TEXT[:28], 1], 29))
    assert rows.left_out == {}
    assert held(rows, "e") == [48]
