"""Logit bias."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from specdec.interfaces.row_block import RowBlock
from specdec.logits.rules.edits import Edits, Points

_MOST = 1e38
"""Larger biases do the same: no sum with a logit is infinite."""


class BiasRule:
    """Adds a number to the logits of some ids.

    Args:
        bias: number to add for each id.
    """

    def __init__(self, bias: Mapping[int, float]) -> None:
        self._ids = np.fromiter(bias, np.int64, len(bias))
        self._values = (
            np.fromiter(bias.values(), np.float64, len(bias)).clip(-_MOST, _MOST).astype(np.float32)
        )

    def add_to(self, edits: Edits, block: RowBlock) -> None:
        """Add the biases to all rows."""
        rows = np.arange(block.num_rows).repeat(len(self._ids))
        amounts = np.tile(self._values, block.num_rows)[None]
        edits.biases.append(Points(rows, np.tile(self._ids, block.num_rows), amounts))
