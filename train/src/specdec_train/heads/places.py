"""Which positions of some windows a head is trained on and measured at."""

from __future__ import annotations

import torch
from torch import Tensor


class Places:
    """The positions whose distribution of the next token is wanted: all, or those inside answers.

    An answer's first token is the target's own, from the pass over the prompt, so drafts begin after it: the distribution at a
    position is wanted if the token there and the one after it are both of an answer.

    Args:
        tokens: `[B, W]`.
        is_answer: `[B, W]` which tokens are of answers; None where all positions count.
    """

    def __init__(self, tokens: Tensor, is_answer: Tensor | None) -> None:
        self._length = tokens.shape[1] - 1
        self.chosen: Tensor | None = None
        """`[M]` the positions, counted through the flattened windows `[B, W - 1]`; None for all."""
        if is_answer is None:
            self._wanted = torch.ones(tokens.shape[0], self._length, dtype=torch.bool, device=tokens.device)
        else:
            self._wanted = is_answer[:, :-1] & is_answer[:, 1:]
            self.chosen = self._wanted.flatten().nonzero()[:, 0]
        self._number = self._wanted.flatten().cumsum(0) - 1

    def rows(self, num_rows: int, first: int, ahead: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return which of a head's rows guess at wanted positions.

        Args:
            num_rows: R, the head's rows are at the first R positions of each window.
            first: positions between a row and the distribution of its first guess.
            ahead: further positions to the distribution that is guessed now.

        Returns:
            three times `[N]`: the rows, counted through `[B, R]`; which of the M wanted positions each guesses; and that
            position, counted through `[B, W - 1]`.
        """
        ends = first + num_rows
        taken = self._wanted[:, first:ends] & self._wanted[:, first + ahead : ends + ahead]
        window, row = taken.nonzero(as_tuple=True)
        place = window * self._length + row + first + ahead
        return window * num_rows + row, self._number[place], place
