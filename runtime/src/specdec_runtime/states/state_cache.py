"""The cache of `transformers` that a model whose layers keep states is given in a pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers.cache_utils import LinearAttentionLayer

from specdec_runtime.interfaces.pass_cache import PassCache

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from specdec_runtime.states.checkpoints import Plan
    from specdec_runtime.states.pool import StatePool

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


class StateCache(PassCache):
    """Gives layers the states of a request as well.

    Args:
        length: the number of tokens that it says it holds.
        layers: layers that keep states, and how many of each kind.
    """

    def __init__(self, length: int, layers: Mapping[int, int]) -> None:
        super().__init__(length)
        self.counts = dict(layers)
        self.work: Work | None = None
        """What the layers with states run; None for one text from its beginning."""
        self.on_write: Callable[[StateKey], object] = lambda _: None
        """Called with each state that a layer writes."""
        self.layers = [LinearAttentionLayer(self.counts.get(n, 1)) for n in range(max(self.counts) + 1)]

    def update_conv_state(
        self, conv_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any
    ) -> torch.Tensor:
        """Write the state of a convolution `[B, C, W]`, and return it; a layer of `transformers` calls it."""
        self.on_write((layer_idx, "conv", state_idx))
        given: torch.Tensor = super().update_conv_state(conv_states, layer_idx, state_idx, **kwargs)
        return given

    def update_recurrent_state(
        self, recurrent_states: torch.Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any
    ) -> torch.Tensor:
        """Write a recurrent state `[B, ...]`, and return it; a layer of `transformers` calls it."""
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
