"""Attention on the CPU: compiled loops over all requests of a short pass."""

from __future__ import annotations

from typing import Any

import torch

from specdec_kernels.cpu.loops.attention import compiled_attention, is_host_float32
from specdec_kernels.cpu.loops.segments import Table, Visible, is_short, segment_arrays
from specdec_kernels.cpu.stored import stored_rows
from specdec_runtime.interfaces import KVCache, PackedBatch
from specdec_runtime.runner import SdpaAttention


class CpuAttention(SdpaAttention):
    """Torch's attention, but for short passes of several requests in float32; see `specdec.interfaces.Attention`."""

    def __init__(self, cache: KVCache, max_context: int) -> None:
        super().__init__(cache, max_context)
        self._prepared: tuple[PackedBatch, tuple[Table, Visible] | None] | None = None

    def attend(
        self,
        layer: int,
        batch: PackedBatch,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scaling: float,
        window: int | None = None,
        **caps: Any,
    ) -> torch.Tensor:
        """Write keys and values to the cache and attend; see `specdec.interfaces.Attention.attend`."""
        softcap = caps.get("softcap")
        is_capped = any(cap is not None for name, cap in caps.items() if name != "softcap")
        if batch.slots is not None and not is_capped and is_host_float32(query, value):
            segments = self._segments(batch)
            if segments is not None:
                self.cache.write(layer, key, value, batch.slots)
                return compiled_attention(
                    query, stored_rows(self.cache, layer), *segments, window, scaling, softcap
                )
        return super().attend(layer, batch, query, key, value, scaling=scaling, window=window, **caps)

    def _segments(self, batch: PackedBatch) -> tuple[Table, Visible] | None:
        """Return the segments as arrays if compiled loops can run the pass, else None; made once for all layers."""
        if self._prepared is None or self._prepared[0] is not batch:
            self._prepared = batch, segment_arrays(batch) if is_short(batch) else None
        return self._prepared[1]
