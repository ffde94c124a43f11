"""What every runner has: a cache and the attention over it."""

from __future__ import annotations

import torch

from specdec.runner.attention_backend import BackendFactory
from specdec.runner.kv_cache import KVCache
from specdec.runner.packed import PROBE_ROWS
from specdec.runner.sdpa import SdpaBackend


class CachedRunner:
    """A KV cache and its attention backend.

    Args:
        device: where they are.
        max_context: the longest sequence, in tokens.
        make_backend: makes the attention backend of a cache; None takes torch's attention.
    """

    def __init__(
        self, device: torch.device, max_context: int, make_backend: BackendFactory | None = None
    ) -> None:
        self.device = device
        self.max_context = max_context
        self._make_backend: BackendFactory = make_backend or SdpaBackend
        self.cache = KVCache(PROBE_ROWS, device)
        self.backend = self._make_backend(self.cache, max_context)

    @property
    def bytes_per_token(self) -> int:
        """Bytes of cache that one token takes over all layers."""
        return self.cache.bytes_per_token

    def allocate(self, num_slots: int) -> None:
        """Make the cache for `num_slots` tokens."""
        shapes = self.cache.shapes
        self.cache = KVCache(num_slots, self.device)
        for layer, shape in shapes.items():
            self.cache.allocate(layer, shape)
        self.backend = self._make_backend(self.cache, self.max_context)
