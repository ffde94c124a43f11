"""What a head has to take in at one step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces import ProposeBatch


@dataclass(frozen=True, slots=True)
class News:
    """New tokens with the states that chose them, of all rows of a batch."""

    ids: npt.NDArray[np.int64]
    """`[T]` the target's ids, row after row."""
    features: torch.Tensor
    """`[T, F]` what the head makes of the target's states."""
    rows: list[int]
    """Rows that have something to take in."""
    spans: list[slice]
    """Which of the tokens that is, for each of them: all, but for a request's first, which has no state."""

    def is_all_of(self, batch: ProposeBatch) -> bool:
        """Return whether every row of the batch takes in all that is new, and something."""
        return len(self.rows) == batch.batch_size and all(
            span.stop - span.start == count for span, count in zip(self.spans, batch.counts, strict=True)
        )
