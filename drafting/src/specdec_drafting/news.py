"""The new tokens that a head has to process in one step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces import ProposeBatch


@dataclass(frozen=True, slots=True)
class News:
    """New tokens of all rows of a batch, with the states that predicted them."""

    ids: npt.NDArray[np.int64]
    """`[T]` the target's ids, row by row."""
    features: torch.Tensor
    """`[T, F]` features that the head computes from the target's states."""
    rows: list[int]
    """Rows that have tokens to process."""
    spans: list[slice]
    """For each of these rows, the tokens to process: all, except a request's first token, which has no state."""

    def is_all_of(self, batch: ProposeBatch) -> bool:
        """Return whether every row of the batch has new tokens and processes all of them."""
        return len(self.rows) == batch.batch_size and all(
            span.stop - span.start == count for span, count in zip(self.spans, batch.counts, strict=True)
        )
