"""Scores drafts by the text that came, whether they were verified or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specdec_plugin_composite.offer import Offer, UnreadOffer


@dataclass(frozen=True)
class PendingOffer:
    """A draft whose text has not come yet."""

    member: int
    offer: Offer
    position: int
    """Of its first token."""
    expected: float
    """Number of its tokens that were expected to be accepted, for a request like all others."""


class Scoring:
    """Drafts that wait for their text, by request."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[PendingOffer]] = {}

    def add(self, request_id: str, waiting: PendingOffer) -> None:
        """Keep a draft until the text behind it decides."""
        self._waiting.setdefault(request_id, []).append(waiting)

    def decided(
        self, request_id: str, num_tokens: int, text_from: Callable[[int], Sequence[int]]
    ) -> list[tuple[PendingOffer, list[int]]]:
        """Return the drafts of a request that its text decides, with the nodes that are in it.

        Args:
            request_id: the request.
            num_tokens: length of its text.
            text_from: returns its tokens from a position on.
        """
        kept, decided = [], []
        waiting = self._waiting.get(request_id, ())
        if not waiting:
            return []
        first = min(each.position for each in waiting)
        text = text_from(first)
        for each in waiting:
            if each.position > num_tokens:
                continue  # the text was cut before it
            if isinstance(each.offer, UnreadOffer) and not each.offer.has_verdict:
                continue  # it was verified in part, or not at all
            come = text[each.position - first :]
            path = each.offer.path(come)
            ends = not path or path[-1] not in each.offer.parents
            if len(path) < len(come) or (path and ends):
                decided.append((each, path))
            else:
                kept.append(each)
        self._waiting[request_id] = kept
        return decided

    def forget(self, request_ids: Sequence[str]) -> None:
        """Drop the drafts of requests."""
        for request_id in request_ids:
            self._waiting.pop(request_id, None)
        self._waiting = dict(self._waiting)  # without the memory of those that were dropped
