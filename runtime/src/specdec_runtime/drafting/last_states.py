"""The hidden states that drafts start from."""

from __future__ import annotations

from itertools import accumulate

import torch

from specdec.interfaces import ProposeBatch


class LastStates:
    """Keeps for each request the state that chose its last token, because a draft may be wanted without a new token."""

    def __init__(self) -> None:
        self._ends: dict[str, int] = {}
        self._states: dict[str, torch.Tensor] = {}

    def take_in(self, batch: ProposeBatch) -> None:
        """Store the state of each row's last new token; a row whose last token has no state loses its state."""
        last = [end - 1 for end in accumulate(batch.counts)]
        new = [row for row, count in enumerate(batch.counts) if count]
        kept = batch.hidden_states
        if kept is not None and new:
            kept = torch.stack([kept[last[row]] for row in new])
        for place, row in enumerate(new):
            request_id, end = batch.request_ids[row], batch.starts[row] + batch.counts[row]
            if kept is not None and end > 1:  # no state chose the first token of a text
                self._ends[request_id] = end
                self._states[request_id] = kept[place]
            else:
                self.drop(request_id)
        for row, count in enumerate(batch.counts):
            if not count and batch.starts[row] != self._ends.get(batch.request_ids[row]):
                self.drop(batch.request_ids[row])

    def has(self, request_id: str, num_tokens: int) -> bool:
        """Return whether the state that chose the last of a request's tokens is available."""
        return self._ends.get(request_id) == num_tokens

    def of(self, request_ids: list[str]) -> list[torch.Tensor]:
        """Return the states `[H]` of requests that have one."""
        return [self._states[request_id] for request_id in request_ids]

    def drop(self, request_id: str) -> None:
        """Forget a request."""
        self._ends.pop(request_id, None)
        self._states.pop(request_id, None)
