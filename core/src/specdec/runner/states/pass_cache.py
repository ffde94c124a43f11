"""The cache of `transformers` that a model is given in a pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicLayer, LinearAttentionLayer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from specdec.runner.states.checkpoints import Plan
    from specdec.runner.states.pool import StatePool

StateKey = tuple[int, str, int]
"""Layer, `conv` or `recurrent`, and the number of the state in its layer."""


@dataclass(frozen=True)
class Work:
    """What layers with states run in a pass."""

    plan: Plan
    pool: StatePool
    """The states that the plan names."""
    num_rows: int
    """Number of rows of the pass."""
    is_one_by_one: bool
    """Whether layers take only one row at a time after a state."""


class PassCache(Cache):
    """Gives attention the keys and values of the pass alone, which our attention keeps, and layers the states of a request.

    Args:
        length: the number of tokens that it says it holds.
        layers: layers that keep states, and how many of each kind.
    """

    def __init__(self, length: int = 0, layers: Mapping[int, int] | None = None) -> None:
        self.length = length
        self.counts = dict(layers or {})
        self.work: Work | None = None
        """What the layers with states run; None for one text from its beginning."""
        self._attending: int | None = None
        """The layer whose keys and values were given last, until it attends."""
        self.on_attend: Callable[[], object] = lambda: None
        """Called before a layer attends."""
        self.on_write: Callable[[StateKey], object] = lambda _: None
        """Called with each state that a layer writes."""
        super().__init__(layer_class_to_replicate=DynamicLayer)
        if self.counts:
            self.layers = [LinearAttentionLayer(self.counts.get(n, 1)) for n in range(max(self.counts) + 1)]

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
        return self.length

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Return sizes for a mask, which our attention does not read."""
        return query_length, 0

    def update_conv_state(
        self, conv_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any
    ) -> torch.Tensor:
        """See `transformers`."""
        self.on_write((layer_idx, "conv", state_idx))
        given: torch.Tensor = super().update_conv_state(conv_states, layer_idx, state_idx, **kwargs)
        return given

    def update_recurrent_state(
        self, recurrent_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any
    ) -> torch.Tensor:
        """See `transformers`."""
        self.on_write((layer_idx, "recurrent", state_idx))
        given: torch.Tensor = super().update_recurrent_state(recurrent_states, layer_idx, state_idx, **kwargs)
        return given

    def read(self, key: StateKey) -> torch.Tensor:
        """Return a state `[B, ...]`."""
        layer, kind, index = key
        held = self._layer(layer)
        state = (held.conv_states if kind == "conv" else held.recurrent_states)[index]
        assert isinstance(state, torch.Tensor)
        return state

    def clear(self, layer: int) -> None:
        """Have a layer begin a text."""
        self.layers[layer] = LinearAttentionLayer(self.counts[layer])

    def put(self, key: StateKey, state: torch.Tensor) -> None:
        """Give a layer a state `[B, ...]`, which it may change."""
        layer, kind, index = key
        held = self._layer(layer)
        held.has_previous_state[index] = True
        if kind == "conv":
            held.conv_states[index] = state
            held.is_conv_states_initialized[index] = True
            held.conv_kernel_size[index] = state.shape[-1]
        else:
            held.recurrent_states[index] = state
            held.is_recurrent_states_initialized[index] = True

    def _layer(self, layer: int) -> LinearAttentionLayer:
        held = self.layers[layer]
        assert isinstance(held, LinearAttentionLayer)
        return held
