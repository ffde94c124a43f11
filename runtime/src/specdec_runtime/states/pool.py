"""Memory for states: a fixed number of places, each of which holds those of all layers after one text."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from specdec_runtime.states.state_cache import StateKey


class StatePool:
    """One tensor `[num_places, ...]` for each state of each layer.

    Args:
        shapes: a state `[1, ...]` of each, for shape, dtype and device.
    """

    def __init__(self, shapes: Mapping[StateKey, torch.Tensor]) -> None:
        self._shapes = {key: state.new_empty(0, *state.shape[1:]) for key, state in shapes.items()}
        self._held = dict(self._shapes)

    @property
    def num_bytes(self) -> int:
        """Bytes of one place."""
        return sum(prod(state.shape[1:]) * state.dtype.itemsize for state in self._shapes.values())

    def allocate(self, num_places: int) -> None:
        """Allocate places. On the host, the system commits pages only when they are written."""
        self._held = {}  # gone before there are others
        self._held = {
            key: state.new_empty(num_places, *state.shape[1:]) for key, state in self._shapes.items()
        }

    def read(self, key: StateKey, state_indices: torch.Tensor) -> torch.Tensor:
        """Return a copy `[B, ...]` of one state at `state_indices` `[B]`."""
        return self._held[key].index_select(0, state_indices)

    def write(
        self, key: StateKey, state: torch.Tensor, rows: torch.Tensor, state_indices: torch.Tensor
    ) -> None:
        """Store the rows `rows` `[n]` of `state` `[B, ...]` at `state_indices` `[n]`."""
        self._held[key].index_copy_(0, state_indices, state.index_select(0, rows))

    def copy(self, source: int, destination: int) -> None:
        """Copy the states of one place to another."""
        for held in self._held.values():
            held[destination] = held[source]
