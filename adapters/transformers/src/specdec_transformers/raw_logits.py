"""The target's logits for every committed token, for `output_logits` and `output_scores`."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdec.logits import LogprobRecord


class RawLogits(LogprobRecord):
    """Keeps whole logits rows in float32, whereas a `LogprobRecord` keeps a few log probabilities per row."""

    needs_logits = True

    def __init__(self) -> None:
        super().__init__(0, None)
        self.rows: list[torch.Tensor] = []
        """`[V]` for each committed token: the logits it was chosen from, before any sampling parameter."""

    def add(self, logits: torch.Tensor, token_ids: Sequence[int]) -> None:
        """Record tokens; see `LogprobRecord.add`."""
        self.rows += logits[: len(token_ids)].float().clone().unbind()
