"""The rule that ends reasoning at its budget."""

from __future__ import annotations

import numpy as np

from specdec.interfaces.row_block import RowBlock
from specdec.logits.rules.edits import Edits
from specdec.text.reasoning import Reasoning


class ThinkingBudgetRule:
    """Allows one id alone in rows whose reasoning has used up its budget. It applies last, so that nothing forbids that id.

    Args:
        reasoning: of the sample.
    """

    def __init__(self, reasoning: Reasoning) -> None:
        self._reasoning = reasoning

    def add_to(self, edits: Edits, block: RowBlock) -> None:
        """Force ids in the rows of a block."""
        block = block.read()
        self._reasoning.follow(block.output_token_ids.tolist())
        forced = self._reasoning.forced_behind(block.nodes, block.parents)
        rows = [row for row, token_id in enumerate(forced) if token_id is not None]
        if rows:
            edits.force(np.array(rows), np.array([forced[row] for row in rows]))
