"""When chains are drafted in one compiled call, and what becomes of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from drafting_check import GREEDY, WARM, batch_of

from specdec import SamplingParams
from specdec.interfaces import DraftSampling, VerdictOffsets
from specdec_runtime.drafting import DraftingConfig, PartialDraft, equal_vocabulary, reduced_vocabulary
from specdec_runtime.drafting.chains import ChainCall, ChainLoop
from specdec_runtime.drafting.partial_draft import UnreadNodes, draft_of
from specdec_runtime.interfaces import Chains, ChainWork

CPU = torch.device("cpu")
PLACES = [0, 64], [5, 7]
VERDICT = VerdictOffsets(40, 46, 4)
TOKENS = torch.tensor([[4, 5, 6, 7], [1, 0, 2, 3]])
CONFIDENCES = torch.tensor([[0.9, 0.8, 0.2, 0.6], [0.5, 0.5, 0.5, 0.5]])


def loop(method: str, threshold: float = 0.0, ends: tuple[int, ...] = ()) -> ChainLoop:
    return ChainLoop(method, equal_vocabulary(8, 8, CPU), 8, threshold, ends)


def answers(asked: list[Any], ends_after: int = 9) -> ChainCall:
    def call(work: ChainWork) -> Chains:
        num_steps, rules = work.num_steps, work.rules
        asked.append((num_steps, work.temperatures, work.keys.positions.tolist()))
        assert (work.first_slots, work.num_cached) == PLACES
        probs = torch.full((2, num_steps, 8 if rules.is_drawn else 0), 0.125)
        num_steps = min(num_steps, ends_after)
        return Chains(TOKENS[:, :num_steps], CONFIDENCES[:, : num_steps if rules.threshold else 0], probs)

    return call


def drafts(*caps: tuple[int, int]) -> list[PartialDraft]:
    return [PartialDraft(row, nodes, depth) for row, (nodes, depth) in enumerate(caps)]


def test_rows_end_where_they_may_have_no_more() -> None:
    asked: list[Any] = []
    drafting = drafts((4, 3), (1, 9))
    fed, _ = loop("coupled").draft(batch_of(WARM, GREEDY), drafting, answers(asked), PLACES)
    assert asked == [(3, [1.0, 0.0], [0, 1])]
    assert [draft.token_ids for draft in drafting] == [[4, 5, 6], [1]]
    assert drafting[0].parents == [-1, 0, 1]
    assert fed == [[4, 5], []]
    assert drafting[0].draft_probs == {}


def test_greedy_drafts_have_no_temperature() -> None:
    asked: list[Any] = []
    loop("greedy").draft(batch_of(WARM, WARM), drafts((2, 2), (2, 2)), answers(asked), PLACES)
    assert asked[0][1] == [0.0, 0.0]


def test_the_end_of_text_ends_a_draft() -> None:
    drafting = drafts((4, 4), (4, 4))
    ignoring = SamplingParams(temperature=1.0, seed=1, ignore_eos=True)
    loop("coupled", ends=(5, 0)).draft(batch_of(WARM, ignoring), drafting, answers([]), PLACES)
    assert [draft.token_ids for draft in drafting] == [[4, 5], [1, 0, 2, 3]]


def test_an_unlikely_token_is_the_last_and_stays() -> None:
    drafting = drafts((4, 4), (4, 4))
    loop("coupled", 0.3).draft(batch_of(WARM, WARM), drafting, answers([]), PLACES)
    assert drafting[0].token_ids == [4, 5, 6]
    assert drafting[0].confidences == pytest.approx([0.9, 0.8, 0.2])
    assert drafting[1].token_ids == [1, 0, 2, 3]


def test_rows_end_where_the_loop_did() -> None:
    drafting = drafts((4, 4), (1, 4))
    fed, _ = loop("coupled", 0.95).draft(batch_of(WARM, WARM), drafting, answers([], ends_after=2), PLACES)
    assert [draft.token_ids for draft in drafting] == [[4], [1]]
    assert fed == [[4], []]
    drafting = drafts((4, 4), (4, 4))
    fed, _ = loop("coupled", 0.1).draft(batch_of(WARM, WARM), drafting, answers([], ends_after=3), PLACES)
    assert [draft.token_ids for draft in drafting] == [[4, 5, 6], [1, 0, 2]]
    assert fed == [[4, 5], [1, 0]]


def test_drawn_tokens_come_with_their_probabilities() -> None:
    drafting = drafts((3, 3), (3, 3))
    loop("probabilistic").draft(batch_of(WARM, GREEDY), drafting, answers([]), PLACES)
    assert sorted(drafting[0].draft_probs) == [0, 1, 2]
    assert drafting[0].draft_probs[2].tolist() == [0.125] * 8
    assert drafting[1].draft_probs == {}


@pytest.mark.parametrize(
    ("num_ids", "rows", "counts", "num_unread", "follows"),
    [
        (8, (0, 1), (3, 1), (), True),
        (8, (0, 1), (0, 5), (4, 4), True),
        (8, (0, 1), (4, 1), (), False),  # more than the verdict emits
        (8, (1, 0), (3, 1), (), False),
        (8, (1,), (3, 1), (), False),
        (6, (0, 1), (3, 1), (), False),  # a draft that lacks ids begins with none that is not read
    ],
)
def test_what_follows_a_verdict(num_ids: int, rows, counts, num_unread, follows: bool) -> None:
    own, works = equal_vocabulary(8, num_ids, CPU), list[ChainWork]()
    made = ChainLoop("greedy", own, num_ids, 0.0, ())

    def call(work: ChainWork) -> Chains:
        works.append(work)
        return answers([])(work)

    batch = replace(
        batch_of(GREEDY, GREEDY),
        counts=counts,
        last_num_accepted=[2, 0],
        verdict=VERDICT,
        num_unread=num_unread,
    )
    made.draft(batch, [PartialDraft(row, 3, 3) for row in rows], call, PLACES)
    assert works[0].verdict == (VERDICT if follows else None)
    assert works[0].is_unread == bool(num_unread)


def test_chains_that_were_not_read_are_one_draft() -> None:
    chains, none = torch.tensor([[4, 5, 6], [1, 0, 2]]), torch.empty(2, 0)
    config = DraftingConfig(num_speculative_tokens=3)
    made = drafts((3, 3), (3, 3))
    given = Chains(chains, none, none)
    made[0].unread, made[1].unread = UnreadNodes(given, 0, 3), UnreadNodes(given, 1, 2)
    draft = draft_of(made, config, CPU, None)
    assert draft.token_ids.data_ptr() == chains.data_ptr(), "not copied"
    assert draft.rows == ((4, 5, 6), (1, 0))
    assert draft_of([None, made[1]], config, CPU, None).rows == ((), (1, 0))
    assert draft_of([None, made[1], made[0], None], config, CPU, None).rows == ((), (1, 0), (4, 5, 6), ())


def test_drawn_chains_that_were_not_read_keep_their_q() -> None:
    ids, probs, vocab_map = torch.arange(9).view(3, 3), torch.rand(3, 4, 8), torch.arange(8)
    config, given = DraftingConfig(num_speculative_tokens=3), Chains(ids, torch.empty(3, 0), probs)
    first, greedy, empty = drafts((3, 3), (3, 3), (3, 3))
    first.unread, greedy.unread = UnreadNodes(given, 0, 3, True), UnreadNodes(given, 1, 2)
    draft = draft_of([first, greedy, empty], config, CPU, vocab_map)
    assert draft.node_probs.data_ptr() == probs.data_ptr(), "core copies it"
    assert (draft.sampling, draft.num_nodes) == (DraftSampling.IID, (3, 2, 0))
    assert draft.has_probs.tolist() == [True, False, False]
    assert draft.vocab_map is vocab_map
    moved = draft_of([None, greedy, first], config, CPU, vocab_map)
    assert torch.equal(moved.node_probs[1:], probs[[1, 0]])
    assert draft_of([greedy], config, CPU, vocab_map).node_probs is None


def test_what_the_loop_is_for() -> None:
    plain, two = batch_of(WARM, GREEDY), drafts((2, 2), (2, 2))
    cut = batch_of(WARM, SamplingParams(temperature=1.0, top_p=0.5))
    cold_cut = batch_of(WARM, SamplingParams(temperature=0.0, top_k=3))
    for method in ("greedy", "coupled", "probabilistic"):
        assert loop(method).can_draft(plain, two, 2)
        assert not loop(method).can_draft(plain, two, 1)
        assert not loop(method).can_draft(plain, [], 2)
        assert not loop(method).can_draft(batch_of(WARM, WARM, rule=lambda row, path: None), two, 2)
        assert loop(method).can_draft(cut, two, 2) == (method != "probabilistic")
        assert loop(method).can_draft(cut, two, 2, is_recorded=True)
        assert loop(method).can_draft(cold_cut, two, 2)
    falling = reduced_vocabulary(np.array([5, 2]), 8, CPU)
    assert not ChainLoop("greedy", falling, 2, 0.0, ()).can_draft(plain, two, 2)
