"""Float64 rerun of the target, which distinguishes a tie from an error."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel


class Float64Target:
    """The target in float64; loaded on first use."""

    def __init__(self, model: Path) -> None:
        self._path = model

    @cached_property
    def _model(self) -> PreTrainedModel:
        loaded: PreTrainedModel = AutoModelForCausalLM.from_pretrained(self._path, dtype=torch.float64)
        loaded.eval()
        return loaded

    def top2_gap(self, token_ids: Sequence[int]) -> float:
        """Return the difference of the two best logits after `token_ids`."""
        with torch.inference_mode():
            logits = self._model(input_ids=torch.tensor([list(token_ids)]), logits_to_keep=1).logits[0, -1]
        best = logits.topk(2).values
        return float(best[0] - best[1])
