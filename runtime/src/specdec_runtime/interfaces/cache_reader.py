"""Reads the target's cache."""

from __future__ import annotations

from collections.abc import Callable

import torch

from specdec.interfaces import DraftSlots
from specdec_runtime.interfaces.kv_cache import KVCache, LayerShape


class CacheReader:
    """Gives the target's keys and values of committed tokens; see `TargetHandle.make_cache_reader`.

    Args:
        find_cache: finds the target's cache, which may be another one after the target slept.
        slots: what may be read in this step.
    """

    def __init__(self, find_cache: Callable[[], KVCache], slots: DraftSlots) -> None:
        self._find_cache, self._slots = find_cache, slots

    def shape(self, layer: int) -> LayerShape:
        """Return the shape of one token's keys and values in a layer."""
        return self._find_cache().shapes[layer]

    def read(self, layer: int, first_slot: int, start: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values of positions `start` to `end - 1` of one request, as attention takes them.

        They are views of the cache, valid during `propose`: write nothing there.

        Args:
            layer: the target's layer.
            first_slot: the request's, in `ProposeBatch.first_slots`.
            start: first position.
            end: at most the number of committed tokens less one, in a row with `max_nodes` above 0.

        Returns:
            `[n, Hkv, Dk]` and `[n, Hkv, Dv]`.

        Raises:
            PluginError: if there are no such rows.
        """
        self._slots.check_read(first_slot, start, end)
        cache, rows = self._find_cache(), slice(first_slot + start, first_slot + end)
        return cache.keys[layer][rows], cache.values[layer][rows]
