"""Attention with the paged kernels of specdec-kernels: one launch per layer for the whole pass, trees included."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch

from specdec_kernels.cuda.attention_calls import AttentionCalls
from specdec_kernels.cuda.paged_pass import PagedPass, PassNumbers, paged_pass, pass_numbers
from specdec_kernels.cuda.shared_slots import SharedSlots
from specdec_kernels.triton import Backend, use_backend
from specdec_kernels.triton.kv_compact import kv_compact
from specdec_kernels.triton.kv_write import kv_write
from specdec_kernels.triton.paged_attention import paged_attention
from specdec_kernels.triton.rope_kv_write import HeadNorms, rope_kv_write
from specdec_runtime.interfaces import KVCache, PackedBatch
from specdec_runtime.runner import SdpaAttention

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class PagedAttention:
    """Attention over a packed batch with Triton kernels. One instance serves one model; see `specdec.interfaces.Attention`.

    Args:
        cache: keys and values; every request has one contiguous run of slots, and may share its first rows.
        max_context: maximum sequence length, in tokens.
        is_invariant: whether results must be batch-invariant (bit-identical whatever else is in the pass), rows of
            trees included.
    """

    dtypes = _DTYPES
    """Dtypes of keys and values that the kernels support; other dtypes use torch's attention."""

    def __init__(self, cache: KVCache, max_context: int, *, is_invariant: bool = False) -> None:
        self.cache = cache
        self.is_invariant = is_invariant
        self._torch = SdpaAttention(cache, max_context)
        cache.compacts = partial(compact, self.dtypes)
        self._prepared: tuple[PackedBatch, PagedPass] | None = None
        self._calls: AttentionCalls | None = None

    @property
    def slot_pool(self) -> type[SharedSlots] | None:
        """Places requests so that they share cached prefixes; None where keys and values are read as runs, not by tables."""
        is_by_tables = all(shape.dtype in self.dtypes for shape in self.cache.shapes.values())
        return SharedSlots if is_by_tables and self.cache.device.type == "cuda" else None

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
        softcap: float | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Write keys and values to the cache and attend; see `specdec.interfaces.Attention.attend`."""
        if query.dtype not in self.dtypes:  # float64, which the kernels do not support
            return self._torch.attend(
                layer, batch, query, key, value, scaling=scaling, window=window, softcap=softcap, sinks=sinks
            )
        self.cache.ensure(layer, key, value)
        rows = self.prepare(batch)
        pages = self._pages(layer, rows)
        with kernels_on(query.device):
            kv_write(_with_unit_stride(key), _with_unit_stride(value), *pages, rows.slots)
            return self._read(
                rows,
                _with_unit_stride(query),
                pages,
                scale=scaling,
                window=window,
                softcap=softcap,
                sinks=None if sinks is None else sinks.contiguous(),
            )

    def attend_rotating(
        self,
        layer: int,
        batch: PackedBatch,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        *,
        scaling: float,
        window: int | None = None,
        norms: HeadNorms | None = None,
    ) -> torch.Tensor:
        """The same for queries and keys before norm and rotation, which are applied in place when the cache is written.

        Args:
            layer: the layer's index.
            batch: the pass.
            query: `[T, H, D]`, unit stride along D, overwritten.
            key: `[T, Hkv, D]` likewise, not overwritten.
            value: `[T, Hkv, Dv]`.
            cos: `[P, R / 2]` by position.
            sin: `[P, R / 2]`.
            scaling: factor on the scores.
            window: sliding window, in tokens.
            norms: norms of the heads; None for models without.

        Returns:
            `[T, H, Dv]`.
        """
        self.cache.ensure(layer, key, value)
        rows = self.prepare(batch)
        pages = self._pages(layer, rows)
        given = query, key, value, cos, sin, *pages, rows.slots
        rope_kv_write(*given, positions=batch.positions, norms=norms, out=query)
        return self._read(rows, query, pages, scale=scaling, window=window)

    def _pages(self, layer: int, rows: PagedPass) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the layer's keys and values as pages `[num_blocks, block_size, Hkv, D]`."""
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        return tuple(part.view(-1, rows.page_size, *part.shape[1:]) for part in (keys, values))  # type: ignore[return-value]  # two

    def _read(
        self,
        rows: PagedPass,
        query: torch.Tensor,
        pages: tuple[torch.Tensor, torch.Tensor],
        *,
        window: int | None,
        **options: Any,
    ) -> torch.Tensor:
        options |= {"window": window, "batch_invariant": self.is_invariant, "is_causal": rows.is_causal}
        # Kept until `compile` has launched every kernel that a later pass may need.
        if self._calls is not None:
            self._calls.add(query, pages, 0 if rows.tree_mask is None else rows.tree_mask.shape[1], options)
        return paged_attention(
            query,
            *pages,
            rows.block_tables,
            rows.query_starts,
            rows.context_lens,
            tree_mask=rows.tree_mask,
            positions=None if window is None else rows.positions,
            max_context_len=rows.max_context_len,
            out=None if rows.outputs is None else rows.outputs.like(query, pages[1].shape[-1]),
            **options,
        )

    def keep_calls(self) -> None:
        """Keep what later passes call, until `compile`."""
        self._calls = AttentionCalls()

    def compile(self, num_requests: int, bounds: list[int]) -> None:
        """Compile what the passes until now need for other numbers of rows, requests and tokens; see `AttentionCalls`."""
        calls, self._calls = self._calls, None
        if calls is not None:
            with kernels_on(self.cache.device):
                calls.compile(num_requests, bounds)

    def prepare(self, batch: PackedBatch) -> PagedPass:
        """Return a pass in the form that the kernels read; made once for all layers."""
        if self._prepared is None or self._prepared[0] is not batch:
            cache = self.cache
            self.use(batch, paged_pass(batch, cache.num_slots, cache.shared, is_exact=self.is_invariant))
        assert self._prepared is not None
        return self._prepared[1]

    def numbers(self, batch: PackedBatch) -> PassNumbers:
        """Return what the kernels read of a pass, on the host."""
        if self.is_invariant:
            batch.read_trees()
        cache = self.cache
        return pass_numbers(batch.segments, cache.num_slots, cache.shared, is_exact=self.is_invariant)

    def use(self, batch: PackedBatch, rows: PagedPass) -> None:
        """Use these tensors for the attention of a batch, instead of those derived from its segments."""
        self._prepared = batch, rows

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor) -> None:
        """Write rows `[T, Hkv, D]` of a layer to slots `[T]` of the cache, but where that is -1."""
        self.cache.ensure(layer, keys, values)
        pages = self.cache.keys[layer][:, None], self.cache.values[layer][:, None]
        with kernels_on(keys.device):
            kv_write(_with_unit_stride(keys), _with_unit_stride(values), *pages, slots)


def compact(
    dtypes: tuple[torch.dtype, ...], group: torch.Tensor, first_slots: torch.Tensor, paths: torch.Tensor
) -> bool:
    """Move rows of keys and values `[n, num_slots, Hkv, D]` by one launch; see `SlotCache.gather`."""
    if group.dtype not in dtypes:
        return False
    pages = group[:, :, None]
    size = len(pages) // 2 if len(pages) % 2 == 0 else len(pages)  # all by themselves if they are odd
    with kernels_on(group.device):
        kv_compact(pages[:size], pages[-size:], first_slots, paths)
    return True


def kernels_on(device: torch.device) -> AbstractContextManager[None]:
    """Launch kernels on a device, which need not be the current one; on the host, in Triton's interpreter."""
    return torch.cuda.device(device) if device.type == "cuda" else use_backend(Backend.TRITON)


def _with_unit_stride(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()
