"""Probable successors of each token."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from specdec.interfaces import TargetTopK

Successors = tuple[tuple[int, ...], tuple[float, ...]]
"""Ids and their probabilities, most probable first."""
_UNKNOWN = 0.3
"""Probability of a successor of which only the text is known."""


class SuccessorTable:
    """The successors that one request saw last of each token, and below them those of earlier requests.

    Args:
        learned: successors of tokens that the request has not seen; not written to.
    """

    def __init__(self, learned: dict[int, Successors]) -> None:
        self.seen: dict[int, Successors] = {}
        self._learned = learned
        self._log: list[tuple[int, int, Successors]] = []
        self.num_tokens = 0
        """Number of tokens of the request that were taken in."""

    def get(self, token_id: int) -> Successors | None:
        """Return the successors of a token, if any were seen."""
        return self.seen.get(token_id) or self._learned.get(token_id)

    def set(self, token_id: int, successors: Successors, end: int) -> None:
        """Replace the successors of a token, which was seen in a text of `end` tokens."""
        self._log.append((end, token_id, successors))
        self.seen[token_id] = successors

    def add_text(self, token_ids: list[int], end: int) -> None:
        """Take in committed text up to `end`: what follows a token without successors becomes its one successor.

        Args:
            token_ids: the new tokens, and before them the last one that was taken in before.
            end: number of tokens of the request with them.
        """
        for place, following in enumerate(token_ids[1:]):
            if self.get(token_ids[place]) is None:
                self.set(token_ids[place], ((following,), (_UNKNOWN,)), end - len(token_ids) + place + 2)
        self.num_tokens = end

    def forget(self, start: int) -> None:
        """Drop what was seen with tokens from position `start` on."""
        self._log = [entry for entry in self._log if entry[0] <= start]
        self.seen = {token_id: successors for _, token_id, successors in self._log}
        self.num_tokens = start


def successors_of(top_k: TargetTopK) -> Iterator[tuple[int, int, int, Successors]]:
    """Yield the row, the node, the token and its successors, for each token that was verified."""
    ids, probabilities = top_k.top_ids.tolist(), np.exp(top_k.logprobs).tolist()
    tokens = top_k.token_ids.tolist()
    for row, node, token_id, found, likely in zip(
        top_k.rows, top_k.nodes, tokens, ids, probabilities, strict=True
    ):
        yield row, node, token_id, (tuple(found), tuple(likely))
