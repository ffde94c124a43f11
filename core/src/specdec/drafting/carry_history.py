"""The states that one stage of a head has made for a text, kept for the stage behind it."""

from __future__ import annotations

import torch

_FIRST_ROWS = 64


class CarryHistory:
    """A growing list of states; its end can be cut off, so that a stage can go on from any token."""

    def __init__(self) -> None:
        self._rows: torch.Tensor | None = None
        self._count = 0

    def append(self, carries: torch.Tensor) -> None:
        """Add states `[n, F]`."""
        end = self._count + len(carries)
        if self._rows is None or end > len(self._rows):
            grown = carries.new_empty(max(end, 2 * self._count, _FIRST_ROWS), carries.shape[1])
            if self._rows is not None:
                grown[: self._count] = self._rows[: self._count]
            self._rows = grown
        self._rows[self._count : end] = carries
        self._count = end

    def cut(self, count: int) -> None:
        """Keep the first `count` states."""
        self._count = min(count, self._count)

    @property
    def last(self) -> torch.Tensor | None:
        """`[F]` the last state; None if there is none."""
        return None if self._rows is None or not self._count else self._rows[self._count - 1].clone()
