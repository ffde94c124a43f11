"""The target's logits for every token that was committed, as `output_logits` and `output_scores` want them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdec.logits.logprobs import LogprobRecord


class RawLogits(LogprobRecord):
    """Keeps the rows themselves, in float32, where a `LogprobRecord` keeps a few log probabilities of each."""

    def __init__(self) -> None:
        super().__init__(0, lambda token_id: None)
        self.rows: list[torch.Tensor] = []
        """`[V]` for each committed token: what it was chosen from, before any sampling parameter."""

    def add(self, logits: torch.Tensor, token_ids: Sequence[int]) -> None:
        """Record tokens; see `LogprobRecord.add`."""
        self.rows += logits[: len(token_ids)].float().clone().unbind()
