"""The cache of `transformers` that a model is given in a pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicLayer

__all__ = ["PassCache"]


class PassCache(Cache):
    """Gives attention the keys and values of the pass alone, which our attention keeps.

    Args:
        length: the number of tokens that it says it holds; for each row `[T]` its position less its number.
    """

    def __init__(self, length: int | torch.Tensor = 0) -> None:
        self.length = length
        self._attending: int | None = None
        """The layer whose keys and values were given last, until it attends."""
        self.on_attend: Callable[[], object] = lambda: None
        """Called before a layer attends."""
        super().__init__(layer_class_to_replicate=DynamicLayer)

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *args: object,
        **kwargs: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what is given."""
        self._attending = layer_idx
        self.on_attend()
        return key_states, value_states

    def attending_layer(self, module: nn.Module) -> int:
        """Return the layer for which an attention module runs: one that several layers share has no number of its own."""
        layer, self._attending = self._attending, None
        return cast("int", module.layer_idx) if layer is None else layer

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the number of tokens that it says it holds."""
        return cast("int", self.length)

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Return sizes for a mask, which our attention does not read."""
        return query_length, 0
