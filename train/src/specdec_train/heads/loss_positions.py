"""Selects the positions of windows at which a head is trained and evaluated."""

from __future__ import annotations

import torch
from torch import Tensor


class LossPositions:
    """The positions whose next-token distribution is used: all, or those inside answers.

    The target itself generates an answer's first token in the prefill, so drafts begin after it. The
    distribution at a position is used if both the token there and the one after it belong to an answer.

    Args:
        tokens: `[B, W]`.
        is_answer: `[B, W]` mask of answer tokens; None if all positions count.
    """

    def __init__(self, tokens: Tensor, is_answer: Tensor | None) -> None:
        self._length = tokens.shape[1] - 1
        self.chosen: Tensor | None = None
        """`[M]` the positions, indices into the flattened windows `[B, W - 1]`; None for all."""
        if is_answer is None:
            self._wanted = torch.ones(tokens.shape[0], self._length, dtype=torch.bool, device=tokens.device)
        else:
            self._wanted = is_answer[:, :-1] & is_answer[:, 1:]
            self.chosen = self._wanted.flatten().nonzero()[:, 0]
        self._number = self._wanted.flatten().cumsum(0) - 1

    def rows(self, num_rows: int, first: int, ahead: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the head's rows that predict a used position.

        Args:
            num_rows: R; the head's rows are at the first R positions of each window.
            first: positions between a row and the distribution of its first guess.
            ahead: further positions to the distribution of the current guess.

        Returns:
            three tensors `[N]`: the rows, indices into the flattened `[B, R]`; the index of the predicted
            position among the M used ones; and that position, an index into the flattened `[B, W - 1]`.
        """
        ends = first + num_rows
        taken = self._wanted[:, first:ends] & self._wanted[:, first + ahead : ends + ahead]
        window, row = taken.nonzero(as_tuple=True)
        place = window * self._length + row + first + ahead
        return window * num_rows + row, self._number[place], place
