"""Drafts that continue one node at each depth, from a table of logits by path in place of a model."""

from __future__ import annotations

import pytest
import torch
from drafting_check import GREEDY, WARM, KnownDraws, Rule, batch_of

from specdec import SamplingParams
from specdec.interfaces import ProposeBatch
from specdec_runtime.drafting import ChainGrowth, Chooser, PartialDraft, equal_vocabulary

VOCAB = 12
VOCABULARY = equal_vocabulary(VOCAB, VOCAB, torch.device("cpu"))


def logits_after(path: tuple[int, ...]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(hash(path) % 2**31)
    return 2.0 * torch.randn(VOCAB, generator=generator)


def growth_of(method: str, threshold: float = 0.0, ends: tuple[int, ...] = ()) -> ChainGrowth:
    chooser = Chooser(method, VOCABULARY, wants_confidence=threshold > 0)
    return ChainGrowth(chooser, threshold, ends)


def grow(batch: ProposeBatch, growth: ChainGrowth, *drafts: PartialDraft) -> tuple[PartialDraft, ...]:
    """Grow drafts depth by depth, and check what is to be run at each depth."""
    before = list(drafts)

    def run_next(active: list[PartialDraft], places: list[int], token_ids: list[int]) -> torch.Tensor:
        assert [before[place] for place in places] == active
        assert [draft.path[-1] for draft in active] == token_ids
        before[:] = active
        return torch.stack([logits_after(draft.path) for draft in active])

    growth.in_turn(batch, drafts, torch.stack([logits_after(())] * len(drafts)), run_next)
    return drafts


def best_path(depth: int) -> list[int]:
    path: tuple[int, ...] = ()
    for _ in range(depth):
        path = (*path, int(logits_after(path).argmax()))
    return list(path)


def test_each_draft_has_its_own_limits() -> None:
    drafts = grow(
        batch_of(GREEDY, GREEDY, GREEDY),
        growth_of("greedy"),
        PartialDraft(0, 1, 1),
        PartialDraft(1, 9, 3),
        PartialDraft(2, 2, 9),
    )
    assert [draft.token_ids for draft in drafts] == [best_path(1), best_path(3), best_path(2)]
    assert drafts[1].parents == [-1, 0, 1]


def test_the_first_of_siblings_is_continued() -> None:
    batch = batch_of(WARM, GREEDY)
    drafts = [PartialDraft(row, 5, 3, width=2) for row in range(2)]
    first, second = grow(batch, growth_of("probabilistic"), *drafts)
    assert (first.token_ids, first.parents) == (second.token_ids, second.parents)
    assert first.parents == [-1, -1, 0, 0, 2]
    assert first.token_ids[::2] == best_path(3)
    assert sorted(first.draft_probs) == [0, 1, 3]
    assert second.draft_probs == {}
    for row, probs in first.draft_probs.items():
        path = tuple(best_path((row + 1) // 2))
        torch.testing.assert_close(probs, logits_after(path).softmax(-1))
    assert isinstance(batch.draws, KnownDraws)
    nodes = [node for rows, node in batch.draws.nodes if 0 in rows]
    assert len(set(nodes)) == len(nodes), "no draw is used twice"


def test_the_end_of_text_ends_a_draft() -> None:
    second = best_path(2)[1]
    ignoring = SamplingParams(temperature=0.0, ignore_eos=True)
    drafts = grow(
        batch_of(GREEDY, ignoring),
        growth_of("greedy", ends=(second,)),
        PartialDraft(0, 4, 4),
        PartialDraft(1, 4, 4),
    )
    assert [draft.token_ids for draft in drafts] == [best_path(2), best_path(4)]


def test_an_unlikely_token_is_the_last_and_stays() -> None:
    path = best_path(6)
    confidences = [float(logits_after(tuple(path[:i])).softmax(-1)[token]) for i, token in enumerate(path)]
    threshold = sorted(confidences)[1] + 1e-6
    (draft,) = grow(batch_of(GREEDY), growth_of("greedy", threshold), PartialDraft(0, 6, 6))
    length = next(i + 1 for i, value in enumerate(confidences) if value < threshold)
    assert draft.token_ids == path[:length]
    assert draft.confidences == pytest.approx(confidences[:length])


def odd_and_short(row: int, path: tuple[int, ...]) -> list[int] | None:
    return None if row else [] if len(path) == 2 else [1, 3, 5]


@pytest.mark.parametrize("method", ["greedy", "coupled", "probabilistic"])
def test_grammars_end_drafts_and_limit_siblings(method: str) -> None:
    rule: Rule = odd_and_short  # type: ignore[assignment]  # a path is a tuple
    drafts = [PartialDraft(row, 12, 3, width=4) for row in range(2)]
    ruled, free = grow(batch_of(WARM, WARM, rule=rule), growth_of(method), *drafts)
    assert set(ruled.token_ids) <= {1, 3, 5}
    assert ruled.parents == [-1, -1, -1, 0, 0, 0]
    assert len(free.token_ids) == 12


def test_logits_of_all_depths_at_once() -> None:
    drafts = [PartialDraft(0, 2, 2), PartialDraft(1, 4, 4)]
    logits = [torch.stack([logits_after((9, depth)) for depth in range(n)]) for n in (2, 4)]
    growth_of("greedy").at_once(batch_of(GREEDY, GREEDY), drafts, logits)
    expected = logits[1].argmax(-1).tolist()
    assert [draft.token_ids for draft in drafts] == [expected[:2], expected]
