"""States of recurrent and convolution layers, as far as they decide where a request's next pass begins."""

from __future__ import annotations

from typing import Protocol


class LayerStates(Protocol):
    """The states of the target's layers that keep no keys and values, for every request and for cached prefixes."""

    @property
    def max_requests(self) -> int:
        """Maximum number of requests that can run at once; known once the caches are allocated."""

    def resume(self, owner: object, first_slot: int, num_rows: int) -> int:
        """Give a placed request a state that is kept for its first rows, so that a pass continues after them.

        Args:
            owner: the request.
            first_slot: slot of its position 0.
            num_rows: number of its cached rows.

        Returns:
            the number of rows before the state, as many as possible; 0 if it must begin anew.
        """

    def release(self, owner: object) -> None:
        """Drop a request's states."""
