"""A member of the cascade and the state of its deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from specdec.interfaces import Capability, Draft, FinishReason, ProposeBatch, Proposer, TargetTopK, TokenIds

_STATES = {Capability.HIDDEN_STATES, Capability.AUX_HIDDEN_STATES}


@dataclass(frozen=True)
class Offer:
    """A draft of one member for one request."""

    token_ids: list[int]
    parents: list[int]
    promise: float
    """Expected number of accepted tokens by the member's confidence; the draft's length if it has none."""
    proposer: str | None = None
    """The proposer that drafted, if the member itself is composed of several."""


class Asked:
    """A member and the cascade's state about it.

    Args:
        proposer: the member.
        most_tokens: k of its configuration.
        aux_places: indices of its auxiliary layers among those of the cascade.
    """

    def __init__(self, proposer: Proposer, most_tokens: int, aux_places: Sequence[int]) -> None:
        self.proposer = proposer
        self._most_tokens, self._aux_places = most_tokens, tuple(aux_places)
        self.reads_states = bool(proposer.capabilities & _STATES)
        self._held: dict[str, int] = {}
        self._drafted: dict[str, bool] = {}

    @property
    def can_resume(self) -> bool:
        """Whether the member implements `resume` for cached prefixes."""
        return type(self.proposer).resume is not Proposer.resume

    def ask(self, batch: ProposeBatch, is_open: Sequence[bool]) -> list[Offer | None]:
        """Deliver the new tokens to the member, and return its offers for the open rows."""
        limits = [
            min(most, self._most_tokens) if wanted else 0
            for most, wanted in zip(batch.max_nodes, is_open, strict=True)
        ]
        batch = self._news(batch)
        was_verified = [self._drafted.get(request_id, False) for request_id in batch.request_ids]
        draft = self.proposer.propose(
            replace(
                batch,
                max_nodes=limits,
                last_num_drafted=[
                    n if own else 0 for n, own in zip(batch.last_num_drafted, was_verified, strict=True)
                ],
                last_num_accepted=[
                    n if own else 0 for n, own in zip(batch.last_num_accepted, was_verified, strict=True)
                ],
                hidden_states=batch.hidden_states if self.reads_states else None,
                aux_hidden_states=tuple(batch.aux_hidden_states[place] for place in self._aux_places),
                has_hidden=batch.has_hidden if self.reads_states else None,
                top_k=self._top_k(batch),
            )
        )
        return _offers(draft)

    def chosen(self, request_ids: Sequence[str], is_chosen: Sequence[bool]) -> None:
        """Record for which requests this member's draft is verified in this step."""
        self._drafted.update(zip(request_ids, is_chosen, strict=True))

    def resume(self, request_id: str, token_ids: TokenIds) -> int:
        """Return how many of a request's first tokens the member holds."""
        held = self._held[request_id] = self.proposer.resume(request_id, token_ids)
        return held

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """Drop the state of requests, here and in the member."""
        for request_id in request_ids:
            self._held.pop(request_id, None)
            self._drafted.pop(request_id, None)
        self.proposer.finish(request_ids, reason)

    def _top_k(self, batch: ProposeBatch) -> TargetTopK | None:
        """Return as many of the target's ids as the member asked for; other members may have asked for more."""
        if batch.top_k is None or Capability.TARGET_TOP_K not in self.proposer.capabilities:
            return None
        count, top_k = self.proposer.num_top_k, batch.top_k
        return replace(top_k, top_ids=top_k.top_ids[:, :count], logprobs=top_k.logprobs[:, :count])

    def _news(self, batch: ProposeBatch) -> ProposeBatch:
        """Return the batch with all tokens not yet delivered to this member; a member that reads states gets it unchanged."""
        starts = list(batch.starts)
        if not self.reads_states:
            held = (self._held.get(request_id, 0) for request_id in batch.request_ids)
            starts = list(map(min, starts, held))
        ends = [start + count for start, count in zip(batch.starts, batch.counts, strict=True)]
        self._held.update(zip(batch.request_ids, ends, strict=True))
        if starts == list(batch.starts):
            return batch
        pieces = [
            batch.token_ids(row)[start:end] for row, (start, end) in enumerate(zip(starts, ends, strict=True))
        ]
        counts = [end - start for start, end in zip(starts, ends, strict=True)]
        return replace(batch, starts=starts, counts=counts, new_token_ids=np.concatenate(pieces))


def _offers(draft: Draft) -> list[Offer | None]:
    """Return a draft's rows, None for empty ones."""
    rows = draft.rows
    parents = None if draft.parents is None else draft.parents.tolist()
    confidence = None if draft.confidence is None else draft.confidence.tolist()
    offers: list[Offer | None] = []
    for row, token_ids in enumerate(rows):
        if not token_ids:
            offers.append(None)
            continue
        above = list(range(-1, len(token_ids) - 1)) if parents is None else parents[row][: len(token_ids)]
        promise = float(len(token_ids)) if confidence is None else _promise(above, confidence[row])
        proposer = None if draft.proposers is None else draft.proposers[row]
        offers.append(Offer(list(token_ids), above, promise, proposer))
    return offers


def _promise(parents: Sequence[int], confidence: Sequence[float]) -> float:
    """Return the sum over nodes of the probability that the whole path to the node is accepted."""
    confidences: list[float] = []
    for parent, chance in zip(parents, confidence, strict=False):
        confidences.append(chance * (confidences[parent] if parent >= 0 else 1.0))
    return sum(confidences)
