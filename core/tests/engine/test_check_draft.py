"""What is cut from drafts that carry q: nothing because of its own token; everything whose q is not a distribution."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.engine.containment import guard as guard_module
from specdec.engine.containment.draft import DraftError, check_draft, check_vocab_map, select_rows
from specdec.engine.containment.guard import ProposerGuard
from specdec.interfaces import (
    CheckedDraft,
    Draft,
    DraftSampling,
    ProposeBatch,
    Proposer,
    ProposerConfig,
    TargetInfo,
)

VOCAB = 6


def drawn(rows: list[list[int]], parents: list[list[int]] | None = None, vocab: int = VOCAB, **keys) -> Draft:
    made = Draft.from_lists(rows, parents)
    size, width = made.token_ids.shape
    q = torch.full((size, width + 1, vocab), 1 / vocab)
    return replace(made, **{"node_probs": q, "sampling": DraftSampling.IID} | keys)


def check(draft: Draft, nodes: int = 9) -> tuple[CheckedDraft, int]:
    size = len(draft.token_ids)
    return check_draft(draft, [nodes] * size, VOCAB)[:2]


def test_a_drawn_id_outside_the_vocabulary_stays_to_be_rejected() -> None:
    offered = drawn([[1, VOCAB, 2], [-7, 3, 2**62], [4, 5, 0]])
    draft, num_cut = check(offered)
    assert draft.rows == ((1, 0, 2), (0, 3, 0), (4, 5, 0))  # what is scored
    assert torch.equal(draft.drawn.token_ids, offered.token_ids)  # what was drawn
    assert num_cut == 3


def test_rows_without_q_are_cut_as_before() -> None:
    draft, num_cut = check(drawn([[1, VOCAB, 2], [1, VOCAB, 2]], has_probs=torch.tensor([True, False])))
    assert draft.rows == ((1, 0, 2), (1,))
    assert num_cut == 1 + 2


def test_equal_siblings_of_point_masses_are_told() -> None:
    tree = Draft.from_lists([[1, 2, 1, 3], [1, 2, 1, 2]], [[-1, -1, -1, 0], [-1, 0, 1, 0]])
    draft, num_cut, told = check_draft(tree, [9, 9], VOCAB)
    assert draft.rows == ((1, 2, 1, 3), (1, 2, 1, 2))
    assert (num_cut, told) == (
        0,
        "row 0: node 2 has parent -1 and id 1, as node 0 has: draft no two equal siblings",
    )
    apart = Draft.from_lists([[1, 1, 1, 2]], [[-1, 0, 1, -1]])
    assert check_draft(apart, [9], VOCAB)[1:] == (0, None)
    assert check(drawn([[1, 1]], [[-1, -1]]))[1] == 0, "those that are drawn may be equal"


def test_caps_cut_whatever_was_drawn() -> None:
    draft, num_cut = check(drawn([[1, VOCAB, 2, 3]]), nodes=2)
    assert (draft.rows, num_cut) == (((1, 0),), 1 + 2)
    tree = drawn([[1, 2, 3, 4]], [[-1, 0, 1, -1]])
    assert check(tree, nodes=2)[0].rows == ((1, 2),)
    assert check(drawn([[1, 2, 3]], [[-1, 5, 0]]))[0].rows == ((1,),)


BAD = {
    "not a number": float("nan"),
    "infinite": float("inf"),
    "negative": -0.1,
    "too much": 0.5,
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_row_that_is_no_law_cuts_what_was_drawn_from_it(kind, place) -> None:
    draft = drawn([[1, 2, 3], [1, 2, 3]])
    draft.node_probs[0, place, 2] = BAD[kind]
    checked, num_cut = check(draft)
    assert checked.rows == ((1, 2, 3)[:place], (1, 2, 3))
    assert num_cut == max(0, 3 - place)  # nothing is drawn from the row after the last node


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_row_with_a_negative_entry_is_no_law_whatever_its_sum(dtype) -> None:
    draft = drawn([[1, 2, 3]])
    draft = replace(draft, node_probs=draft.node_probs.to(dtype))
    draft.node_probs[0, 1] = torch.tensor([0.75, -0.25, 0.5, 0, 0, 0])
    assert float(draft.node_probs[0, 1].sum()) == 1.0
    checked, num_cut = check(draft)
    assert (checked.rows, num_cut) == (((1,),), 2)


def test_in_a_tree_the_cut_is_before_the_first_child_of_the_bad_row() -> None:
    parents = [-1, -1, 0, 1, 0]
    for place, kept in ((0, 0), (1, 2), (2, 3), (3, 5), (4, 5)):
        draft = drawn([[1, 2, 3, 4, 5]], [parents])
        draft.node_probs[0, place] = float("nan")
        assert check(draft)[0].rows == ((1, 2, 3, 4, 5)[:kept],)


@given(st.lists(st.integers(-2, VOCAB + 2), min_size=4, max_size=4), st.integers(0, 4), st.integers(0, 3))
@settings(max_examples=80, deadline=None)
def test_whether_a_node_is_kept_depends_on_nodes_before_it_alone(tokens, place, changed) -> None:
    """Another token at a node, with everything drawn later, keeps or cuts the same nodes up to it."""
    tokens = [*tokens[:-1], abs(tokens[-1])]  # -1 at the end is padding
    other = [*tokens[:changed], 1, *tokens[changed + 1 :]]
    lengths = []
    for row in (tokens, other):
        draft = drawn([row])
        draft.node_probs[0, place] *= 2
        lengths.append(len(check(draft)[0].rows[0]))
    assert lengths[0] == lengths[1] == min(place, 4)


def test_laws_need_not_sum_to_1_exactly_and_zeros_are_fine() -> None:
    draft = drawn([[1, 2]])
    draft.node_probs[0, 0] *= 1.0009
    draft.node_probs[0, 1] = torch.tensor([1.0, 0, 0, 0, 0, 0])
    assert check(draft)[1] == 0
    draft.node_probs[0, 0] *= 1.001
    assert check(draft)[1] == 2
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        rounded = torch.softmax(torch.randn(1, 3, VOCAB, generator=torch.Generator().manual_seed(1)), -1)
        assert check(drawn([[1, 2]], node_probs=rounded.to(dtype)))[1] == 0


def test_a_sum_of_about_1_is_made_1_and_an_exact_one_left_alone() -> None:
    draft = drawn([[1, 2]])
    assert torch.equal(check(draft)[0].drawn.node_probs, draft.node_probs)
    draft.node_probs[0, 1] *= 1.0009
    draft.node_probs[0, 2] *= 2
    checked = check(draft)[0].drawn.node_probs
    assert torch.allclose(checked[0, :2].sum(-1), torch.ones(2), atol=1e-6, rtol=0)
    assert torch.equal(checked[0, 2], draft.node_probs[0, 2]), "what is no distribution is left as it is"


def test_a_law_over_another_vocabulary() -> None:
    assert check(drawn([[1, 2]], vocab=4, vocab_map=torch.tensor([5, 1, 2, 0])))[1] == 0
    assert check(drawn([[1, 2]], vocab=9))[1] == 0
    assert check(drawn([[1, 2]], vocab=3))[1] == 0
    assert check(drawn([[1, 2]], node_probs=torch.empty(1, 3, 0)))[0].rows == ((),)


def test_q_that_no_row_carries_is_dropped() -> None:
    draft, num_cut = check(drawn([[1, VOCAB]], has_probs=torch.tensor([False])))
    assert draft.drawn is None
    assert (draft.rows, num_cut) == (((1,),), 1)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"sampling": DraftSampling.DETERMINISTIC}, "by which nothing was drawn"),
        ({"sampling": "iid"}, "by which nothing was drawn"),
        ({"node_probs": torch.ones(1, 3, VOCAB, dtype=torch.int64)}, "not floating point"),
        ({"token_ids": torch.tensor([[1.0, 2.0]])}, "token_ids is torch.float32"),
        ({"parents": torch.tensor([[-1.0, 0.0]])}, "parents is torch.float32"),
        ({"vocab_map": torch.zeros(3, dtype=torch.int64)}, "vocab_map has 3 ids for a q over 6"),
        ({"vocab_map": torch.zeros(VOCAB)}, "vocab_map is torch.float32"),
        ({"node_probs": torch.ones(1, 2, VOCAB)}, "node_probs has shape"),
        ({"has_probs": torch.ones(1)}, "has_probs is torch.float32"),
    ],
)
def test_fields_that_contradict_q_make_it_no_draft(keys, message) -> None:
    with pytest.raises(DraftError, match=message):
        check(replace(drawn([[1, 2]]), **keys))


def test_q_that_somebody_could_train_is_only_read() -> None:
    draft = drawn([[1, 2]], node_probs=torch.full((1, 3, VOCAB), 1 / VOCAB, requires_grad=True))
    assert check(draft)[1] == 0


def test_what_is_checked_is_an_own_copy() -> None:
    q = torch.full((1, 3, VOCAB), 1 / VOCAB)
    offered = Draft(
        torch.tensor([[1, 2]]), torch.tensor([[-1, 0]]), DraftSampling.IID, q, torch.tensor([True]),
        confidence=torch.ones(1, 2),
    )  # fmt: skip
    checked, _ = check(offered)
    assert checked.parents == ((-1, 0),)
    for name in ("token_ids", "node_probs", "has_probs"):
        own, theirs = getattr(checked.drawn, name), getattr(offered, name)
        assert torch.equal(own, theirs), name
        assert own.untyped_storage().data_ptr() != theirs.untyped_storage().data_ptr(), name
        assert own.is_contiguous(), name


def test_selected_rows_keep_their_q() -> None:
    draft = drawn([[1, 2], [3], [4, 5]], has_probs=torch.tensor([True, False, True]))
    draft.node_probs[2, 0] = torch.tensor([0, 0, 0, 0, 1.0, 0])
    some = select_rows(check(draft)[0], [1, 2])
    assert some.rows == ((3,), (4, 5))
    assert some.drawn.has_probs.tolist() == [False, True]
    assert some.drawn.node_probs[1, 0].tolist() == [0, 0, 0, 0, 1.0, 0]
    turned = select_rows(check(draft)[0], [2, 0, 1])
    assert turned.rows == ((4, 5), (1, 2), (3,))
    assert turned.drawn.node_probs[0, 0].tolist() == [0, 0, 0, 0, 1.0, 0]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([0, 1, -1], "maps id 2 to -1, which is none of the target's 6"),
        ([0, VOCAB, 2], "maps id 1 to 6, which"),
        ([3, 4, 3], "maps several ids to 3"),
    ],
)
def test_a_map_leads_to_different_ids_of_the_target(ids, message) -> None:
    with pytest.raises(DraftError, match=message):
        check_vocab_map(torch.tensor(ids), VOCAB)
    check_vocab_map(torch.tensor([5, 0, 3]), VOCAB)
    check_vocab_map(torch.empty(0, dtype=torch.int64), VOCAB)


class Mapping(Proposer):
    """Draws from a reduced vocabulary, by whatever map it is given."""

    name: ClassVar[str] = "mapping"
    vocab_map = torch.tensor([4, 2, 0])

    def propose(self, batch: ProposeBatch) -> Draft:
        ids = self.vocab_map[torch.tensor([[0, 1]])]
        q = torch.full((1, 3, 3), 1 / 3)
        return Draft(ids, sampling=DraftSampling.IID, node_probs=q, vocab_map=self.vocab_map)


def guarded(*, is_strict: bool = False) -> tuple[Mapping, ProposerGuard]:
    info = TargetInfo(VOCAB, 4, 1, 9, torch.float32, torch.device("cpu"), (), None)
    proposer = Mapping(ProposerConfig(num_speculative_tokens=2), info)
    return proposer, ProposerGuard(proposer, VOCAB, is_fallback=True, is_strict=is_strict)


def asked(guard: ProposerGuard) -> CheckedDraft | None:
    return guard.propose(SimpleNamespace(counts=[]), [2])  # type: ignore[arg-type]  # it does not look at the rest


def test_a_map_is_checked_when_it_first_comes(monkeypatch) -> None:
    checked = []
    whole = guard_module.check_vocab_map
    monkeypatch.setattr(guard_module, "check_vocab_map", lambda ids, size: checked.append(whole(ids, size)))
    proposer, guard = guarded()
    assert all(asked(guard) is not None for _ in range(5))
    assert len(checked) == 1
    proposer.vocab_map = torch.tensor([1, 2, 3])
    assert all(asked(guard) is not None for _ in range(5))
    assert len(checked) == 2
    proposer.vocab_map.fill_(9)  # its own memory; ours is the copy that was checked
    draft = asked(guard)
    assert draft is not None
    assert draft.drawn.vocab_map.tolist() == [1, 2, 3]
    proposer.vocab_map = torch.tensor([1, -1, 3])  # the second id would read as padding
    assert asked(guard) is None
    assert asked(guard) is None
    assert guard.metrics.proposer_errors == 2


def test_a_false_map_raises_where_drafts_are_strict() -> None:
    proposer, guard = guarded(is_strict=True)
    proposer.vocab_map = torch.tensor([1, 1, 3])
    with pytest.raises(DraftError, match="maps several ids to 1"):
        asked(guard)


Q = torch.full((1, 4, VOCAB), 1 / VOCAB)
WRONG_Q = torch.cat((Q[:, :1], Q[:, 1:2] / 2, Q[:, 2:]), 1)


@pytest.mark.parametrize(
    ("draft", "flaw"),
    [
        (Draft.from_lists([[1], [1, 2, 3, 4]]), "row 1: 4 nodes, and max_nodes is 3"),
        (
            Draft.from_lists([[1, VOCAB, 3, 4]]),
            f"row 0: node 1 has id {VOCAB}, and the vocabulary has {VOCAB}",
        ),
        (
            Draft(torch.tensor([[1, -1, 3]])),
            "row 0: node 1 is padding (-1), which may only stand behind the last node",
        ),
        (
            Draft.from_lists([[1, 2]], [[-1, 1]]),
            "row 0: node 1 has parent 1, which does not precede it",
        ),
        (
            Draft(torch.tensor([[1, 2, 3]]), node_probs=WRONG_Q, sampling=DraftSampling.IID),
            "row 0: node_probs[1], which node 1 is drawn from, is no distribution",
        ),
        (
            Draft(torch.tensor([[1, 2, -9]]), node_probs=Q, sampling=DraftSampling.IID),
            f"row 0: node 2 has id -9, and the vocabulary has {VOCAB}",
        ),
        (Draft.from_lists([[1, 2, 3]], [[-1, -1, 0]]), None),
    ],
)
def test_the_one_thing_that_is_wrong_is_named(draft: Draft, flaw: str | None) -> None:
    _, num_cut, found = check_draft(draft, [3] * len(draft.token_ids), VOCAB)
    assert found == flaw
    assert (num_cut > 0) == (flaw is not None)


def test_confidence_is_kept_for_the_nodes_that_are() -> None:
    draft, _ = check(Draft.from_lists([[1, 2, 3], [4]], confidence=[[0.5, 0.25, 0.125], [1.0]]), nodes=2)
    assert draft.confidence == ((0.5, 0.25), (1.0,))
    assert check(Draft.from_lists([[1]]))[0].confidence is None


def test_failures_that_a_proposer_contained_count_as_its_own() -> None:
    proposer, guard = guarded()
    proposer.num_contained = 2
    asked(guard)
    assert guard.metrics.proposer_errors == 2
    proposer.num_contained = 3
    asked(guard)
    asked(guard)
    assert guard.metrics.proposer_errors == 3
