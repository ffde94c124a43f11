"""Chains that stay on a device: the host learns from the verdict which of their tokens are in the text."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from composite_check import batch_of, composite_of, scripted

from specdec.interfaces import CheckedDraft, DeviceNodes, DraftSampling, DrawnNodes
from specdec_plugin_composite import Offer
from specdec_plugin_composite.assemble import draft_of
from specdec_plugin_composite.choose.scoring import PendingOffer, Scoring
from specdec_plugin_composite.offer import UnreadOffer, offers_of


def unread(
    nodes: torch.Tensor, num_nodes: Sequence[int], drawn: DrawnNodes | None = None
) -> tuple[CheckedDraft, list[Offer | None]]:
    """Return a member's draft whose ids are `nodes`, which the host has not read, and its rows."""
    there = DeviceNodes([nodes], num_nodes, 97)
    draft = CheckedDraft(((),) * len(num_nodes), drawn=drawn, device_nodes=there)
    return draft, offers_of(draft, "model", 1)


def test_the_verdict_is_all_that_is_known_of_a_chain() -> None:
    _, (offer, none) = unread(torch.empty(2, 3, dtype=torch.int64, device="meta"), (3, 0))
    assert none is None
    assert isinstance(offer, UnreadOffer)
    assert (offer.num_nodes, offer.is_chain, offer.promise) == (3, True, 3.0)
    offer.observe_verdict(3, 2)
    assert offer.path([5, 6]) == [0, 1]  # reading a tensor without data would raise
    scoring = Scoring()
    scoring.add("a", PendingOffer(1, offer, 7, 2.5))
    assert scoring.decided("a", 10, lambda start: [5, 6, 7][start - 7 :]) == [
        (PendingOffer(1, offer, 7, 2.5), [0, 1])
    ]


def test_of_a_chain_that_was_cut_the_rest_is_not_known() -> None:
    _, (offer,) = unread(torch.empty(1, 3, dtype=torch.int64, device="meta"), (3,))
    assert isinstance(offer, UnreadOffer)
    offer.observe_verdict(2, 2)
    assert not offer.has_verdict
    scoring = Scoring()
    scoring.add("a", PendingOffer(1, offer, 0, 2.5))
    assert scoring.decided("a", 3, lambda start: [5, 6, 7][start:]) == []
    assert scoring.decided("a", 9, lambda start: [5] * 9) == []  # nor kept
    offer.observe_verdict(2, 1)
    assert offer.path([5, 8]) == [0]


def test_a_member_passes_the_verdict_on_to_its_chain() -> None:
    _, (offer,) = unread(torch.empty(1, 3, dtype=torch.int64, device="meta"), (3,))
    assert isinstance(offer, UnreadOffer)
    member = composite_of("longest", scripted(7), scripted(5))._members[0]
    member.verify("a", offer)
    member.deliver(batch_of([1, 2, 3, 7, 8, 4], 3, last=(3, 2)))
    assert offer.path([7, 8, 4]) == [0, 1]


@pytest.mark.parametrize("is_tree", [False, True])
def test_a_draft_of_unread_chains_has_their_tensor(is_tree: bool) -> None:
    nodes = torch.empty(2, 3, dtype=torch.int64, device="meta")
    _, offers = unread(nodes, (3, 2))
    draft = draft_of(offers, {}, is_tree=is_tree, vocab_size=97)
    assert draft.token_ids is nodes
    assert (draft.num_nodes, draft.parents, draft.proposers) == ((3, 2), None, ("model", "model"))


@pytest.mark.parametrize("known", [(8,), (8, 9, 10, 11, 12)])
def test_beside_it_other_requests_have_known_chains(known: tuple[int, ...]) -> None:
    _, (_, second, _) = unread(torch.tensor([[50, 51, 52], [5, 6, 7], [60, 61, 62]]), (3, 2, 3))
    first = Offer(known, tuple(range(-1, len(known) - 1)), "copies")
    draft = draft_of([first, second, None], {}, is_tree=False, vocab_size=97)
    assert draft.rows == (known, (5, 6), ())
    assert draft.proposers == ("copies", "model", "")


def test_q_stays_with_the_rows_that_keep_it() -> None:
    nodes, q = torch.tensor([[5, 6], [7, 8]]), torch.full((2, 3, 97), 1 / 97)
    drawn = DrawnNodes(nodes, q, DraftSampling.IID)
    made, (first, second) = unread(nodes, (2, 1), drawn)
    draft = draft_of([first, second], {1: made}, is_tree=False, vocab_size=97)
    assert draft.node_probs is q
    assert draft.has_probs is not None
    assert draft.has_probs.tolist() == [False, True]
    assert draft.rows == ((5, 6), (7,))
    long = Offer((1, 2, 3), (-1, 0, 1), "copies")  # q has no rows for it: all is read
    mixed = draft_of([long, second], {1: made}, is_tree=False, vocab_size=97)
    assert mixed.num_nodes is None
    assert mixed.rows == ((1, 2, 3), (7,))
    assert mixed.node_probs is not None
    assert torch.equal(mixed.node_probs[1, :2], q[1, :2])


def test_beside_a_tree_all_is_read() -> None:
    _, (offer,) = unread(torch.tensor([[5, 6]]), (2,))
    tree = Offer((1, 2), (-1, -1), "copies")
    draft = draft_of([tree, offer], {}, is_tree=True, vocab_size=97)
    assert draft.num_nodes is None
    assert draft.rows == ((1, 2), (5, 6))


def test_a_shorter_one_is_known() -> None:
    _, (offer,) = unread(torch.tensor([[5, 6, 7]]), (3,))
    assert isinstance(offer, UnreadOffer)
    assert offer.first(3) is offer
    assert offer.first(2) == Offer((5, 6), (-1, 0), "model", None, 1)
