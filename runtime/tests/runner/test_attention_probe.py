"""A backend's attention is tried with the head counts and sizes of every kind of layer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from speccheck.multimodal import SERVED

from specdec_runtime.backends.attention import disagreement
from specdec_runtime.interfaces import AttentionNeeds, KVCache
from specdec_runtime.runner.sdpa import SdpaAttention

NEEDS = AttentionNeeds(torch.device("cpu"), torch.float32, False, False)


@pytest.mark.parametrize("wrong", [None, 8, 16])
@pytest.mark.parametrize("by", [1.0, float("nan")])
def test_layers_of_two_head_sizes(wrong: int | None, by: float) -> None:
    class Wrong(SdpaAttention):
        def attend(
            self, layer: int, batch: Any, query: torch.Tensor, *rest: Any, **keys: Any
        ) -> torch.Tensor:
            right = super().attend(layer, batch, query, *rest, **keys)
            return right + by if query.shape[-1] == wrong else right

    def factory(cache: KVCache, max_context: int) -> Wrong:
        return Wrong(cache, max_context)

    told = disagreement(factory, SdpaAttention, NEEDS, SERVED["gemma4_experts"]())
    assert (told is None) == (wrong is None)
    assert told is None or told.startswith("its attention differs from torch's by")
