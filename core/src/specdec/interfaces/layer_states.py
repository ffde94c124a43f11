"""States of recurrent and convolution layers: what a package that keeps them does for core."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

import torch

from specdec.interfaces.forward import PackedBatch
from specdec.interfaces.kv_cache import KVCache
from specdec.interfaces.part import Part

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from specdec.interfaces.pass_cache import PassCache


class LayerStates(Part):
    """Part `recurrent_states`: the states of one model's layers, for every request and for cached prefixes.

    Passes of the model are given a cache from here, which has each request's state. `Segment` says what was drafted, and where
    the next pass of a request begins says what was accepted.
    """

    layers_without_attention: AbstractSet[int] = frozenset()
    """The layers that keep states instead of keys and values, or neither; known from `find` on."""
    max_requests: int = 0
    """Maximum number of requests that can run at once; known from `allocate` on."""

    @abstractmethod
    def find(self, model: PreTrainedModel, run: Callable[[PassCache], object]) -> None:
        """Find the modules that keep states, in a pass of one text, and prepare them for passes of several requests.

        Args:
            model: the model.
            run: runs the pass with a cache.

        Raises:
            ModelError: if the states are not where they can be rolled back.
        """

    @abstractmethod
    def check(
        self, run: Callable[[PackedBatch], torch.Tensor], batch: PackedBatch, dtype: torch.dtype
    ) -> None:
        """Check that the model continues from kept states as if the text had been run at once.

        Args:
            run: runs a pass; returns its logits.
            batch: a pass of one request, from its beginning.
            dtype: of the model; its logits may be wider.

        Raises:
            ModelError: if it does not.
        """

    @abstractmethod
    def cache(self, batch: PackedBatch, length: int = 0) -> PassCache:
        """Return the cache of a pass, which says that it holds `length` tokens."""

    @abstractmethod
    def make_kv_cache(self, num_slots: int, device: torch.device) -> KVCache:
        """Return a cache of keys and values, whose rows take the states of cached prefixes with them when they are copied."""

    @abstractmethod
    def bytes_per_request(self, *, is_prefix_cached: bool) -> int:
        """Return the memory of one request's states, with its share of those of cached prefixes."""

    @abstractmethod
    def allocate(self, num_requests: int, block_size: int, lag: int = 0) -> None:
        """Allocate memory.

        Args:
            num_requests: maximum number of requests that run at once.
            block_size: tokens per block of the prefix cache; 0 without.
            lag: number of last rows of a cached prefix that run again: 1 if a proposer reads their hidden states.
        """

    @abstractmethod
    def resume(self, owner: object, first_slot: int, num_rows: int) -> int:
        """Give a placed request a state that is kept for its first rows, so that a pass continues after them.

        Args:
            owner: the request, as in `Segment.owner`.
            first_slot: slot of its position 0.
            num_rows: number of its cached rows.

        Returns:
            the number of rows before the state, as many as possible; 0 if it must begin anew.
        """

    @abstractmethod
    def holds(self, owner: object, num_rows: int) -> bool:
        """Return whether a pass of a request can begin after `num_rows` rows: those of its last pass, or drafted in it."""

    @abstractmethod
    def release(self, owner: object) -> None:
        """Drop a request's states."""
