"""One draft of the chosen ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from specdec.interfaces import PADDING_ID, CheckedDraft, Draft, DraftSampling, DrawnNodes, sent
from specdec_plugin_composite.offer import Offer, UnreadOffer


def draft_of(
    offers: Sequence[Offer | None], drawn: Mapping[int, CheckedDraft], *, is_tree: bool, vocab_size: int
) -> Draft:
    """Return the draft of the chosen offers.

    Args:
        offers: `[B]`; None for no draft.
        drawn: for each row that keeps its q, the draft of its member.
        is_tree: whether the draft may have trees.
        vocab_size: number of the target's ids.
    """
    unread = _unread(offers, drawn)
    if unread is not None:
        return unread
    offers = [None if offer is None else offer.read() for offer in offers]
    of_row = {row: draft.drawn for row, draft in drawn.items() if draft.drawn is not None}
    tokens = [() if offer is None else offer.token_ids for offer in offers]
    for row, nodes in of_row.items():  # as they were drawn, whether they can be scored or not
        tokens[row] = tuple(nodes.token_ids[row, : len(tokens[row])].tolist())
    draft = Draft.from_lists(tokens, [() if o is None else o.parents for o in offers] if is_tree else None)
    draft = replace(draft, proposers=tuple("" if offer is None else offer.proposer for offer in offers))
    sampling = DraftSampling.IID
    if any(nodes.sampling is not sampling for nodes in of_row.values()):  # chains are drawn either way
        sampling = DraftSampling.WITHOUT_REPLACEMENT
        of_row = {r: n for r, n in of_row.items() if n.sampling is sampling or drawn[r].parents is None}
    if not of_row:
        return draft
    probs, vocab_map = _probs_of(of_row, draft.token_ids.shape, vocab_size)
    return replace(
        draft,
        token_ids=draft.token_ids.to(probs.device),
        parents=None if draft.parents is None else draft.parents.to(probs.device),
        sampling=sampling,
        node_probs=probs,
        has_probs=torch.tensor([row in of_row for row in range(len(offers))], device=probs.device),
        vocab_map=vocab_map,
    )


def _unread(offers: Sequence[Offer | None], drawn: Mapping[int, CheckedDraft]) -> Draft | None:
    """Return the draft with the tokens where they are, of chains of one member and of chains that the host knows; else None."""
    of_device = [offer for offer in offers if isinstance(offer, UnreadOffer)]
    if not of_device or not all(offer is None or offer.is_chain for offer in offers):
        return None
    there, known = of_device[0].device_nodes, [() if offer is None else offer.token_ids for offer in offers]
    nodes, width = there.given[0], max(there.width, *map(len, known))
    several = [*(offer.device_nodes for offer in of_device), *(d.device_nodes for d in drawn.values())]
    if any(each is not there for each in several) or (drawn and width > there.width):
        return None
    if any(known):
        nodes = sent(Draft.from_lists([*known, [PADDING_ID] * width]).token_ids[:-1], nodes.device)
        part = nodes[:, : there.width]
        part.copy_(torch.where(part < 0, there.given[0], part))
    draft = Draft(
        nodes,
        proposers=tuple("" if offer is None else offer.proposer for offer in offers),
        num_nodes=tuple(0 if offer is None else offer.num_nodes for offer in offers),
    )
    if not drawn:
        return draft
    q = next(iter(drawn.values())).drawn
    assert q is not None
    return replace(
        draft,
        sampling=q.sampling,
        node_probs=q.node_probs,
        has_probs=torch.tensor([row in drawn for row in range(len(offers))]),
        vocab_map=q.vocab_map,
    )


def _probs_of(
    drawn: Mapping[int, DrawnNodes], shape: torch.Size, vocab_size: int
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return `node_probs [B, N + 1, V']` with the given rows, and the vocabulary's map: the target's ids if maps differ."""
    first = next(iter(drawn.values()))
    is_shared = all(nodes.vocab_map is first.vocab_map for nodes in drawn.values())
    width = first.node_probs.shape[2] if is_shared else vocab_size
    probs = first.node_probs.new_zeros(shape[0], shape[1] + 1, width)
    for row, nodes in drawn.items():
        given = nodes.node_probs[row, : shape[1] + 1].to(probs)
        ids = slice(None) if is_shared or nodes.vocab_map is None else nodes.vocab_map
        probs[row, : len(given), ids] = given
    return probs, first.vocab_map if is_shared else None


def drawn_rows(draft: CheckedDraft) -> set[int]:
    """Return the rows of a member's draft that carry q."""
    if draft.drawn is None:
        return set()
    flags = draft.drawn.has_probs
    carries = [True] * len(draft.rows) if flags is None else flags.tolist()
    return {row for row, is_drawn in enumerate(carries) if is_drawn and draft.num_nodes[row]}
