"""A cache of `transformers` that only tells a length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from transformers import Cache


def filled_cache(length: int) -> Cache:
    """Return a cache that says it holds `length` tokens, and gives back the keys and values of the pass alone."""
    from transformers import DynamicCache  # takes seconds, and plugins are listed without it

    class Filled(DynamicCache):
        def get_seq_length(self, layer_idx: int = 0) -> int:
            return length

        def update(
            self,
            key_states: torch.Tensor,
            value_states: torch.Tensor,
            layer_idx: int,
            *args: object,
            **kwargs: object,
        ) -> tuple[torch.Tensor, torch.Tensor]:
            return key_states, value_states

    return Filled()
