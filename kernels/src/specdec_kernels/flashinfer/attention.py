"""Attention over a packed pass by FlashInfer: one launch per layer for its chains, one for its trees."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from specdec.interfaces import KVCache, PackedBatch, Segment
from specdec_kernels.cuda.attention import PagedAttention
from specdec_kernels.cuda.paged_pass import PagedPass
from specdec_kernels.flashinfer.page_indices import PageIndices, tree_mask

DTYPES = (torch.float16, torch.bfloat16)
"""What FlashInfer's prefill kernels take."""
WORKSPACE_BYTES = 128 * 2**20
"""As its documentation recommends."""

logger = logging.getLogger("specdec")


class _Way(NamedTuple):
    """How layers attend."""

    is_tree: bool
    heads: tuple[int, ...]
    """Their numbers for queries and for keys, and the width of both."""
    dtype: torch.dtype
    window: int | None
    scale: float
    softcap: float | None = None
    sinks: torch.Tensor | None = None


@dataclass(slots=True)
class _Planned:
    """A wrapper, which plans once for each pass."""

    wrapper: Any
    sent: torch.cuda.Event
    """When the device has the last plan, whose place on the host the next one overwrites."""
    batch: PackedBatch | None = None


class FlashInferAttention(PagedAttention):
    """`PagedAttention` in which FlashInfer reads the cache: chains by causal plans, trees by masks.

    Captured passes keep the Triton kernel, because plans are made on the host. So do layers that FlashInfer does not take.

    Args:
        make: `flashinfer.BatchPrefillWithPagedKVCacheWrapper`.
        cache: see `PagedAttention`, like `max_context`.
        max_context: in tokens.
    """

    def __init__(self, make: Callable[..., Any], cache: KVCache, max_context: int) -> None:
        super().__init__(cache, max_context)
        self._make = make
        self._workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=cache.device)
        self._plans: dict[_Way, _Planned] = {}
        self._parts: tuple[PackedBatch, list[tuple[list[Segment], PageIndices]]] | None = None
        self._left = set[str]()

    def _read(
        self,
        rows: PagedPass,
        query: torch.Tensor,
        pages: tuple[torch.Tensor, torch.Tensor],
        *,
        window: int | None,
        **options: Any,
    ) -> torch.Tensor:
        way = _Way(False, (query.shape[1], *pages[0].shape[2:]), query.dtype, window, **options)
        if rows.outputs is not None or self._is_left(way, pages[1].shape[-1]):
            return super()._read(rows, query, pages, window=window, **options)
        assert self._prepared is not None
        batch, out = self._prepared[0], query.new_empty(query.shape)
        for segments, part in self._parts_of(batch, rows.page_size):
            is_tree = segments[0].tree_mask is not None
            wrapper = self._plan(way._replace(is_tree=is_tree), batch, segments, part, rows.page_size)
            if len(segments) == len(batch.segments):
                wrapper.run(query, pages, out=out)
            else:
                index = part.rows.to(query.device)
                out[index] = wrapper.run(query[index], pages)
        return out

    def _is_left(self, way: _Way, value_dim: int) -> bool:
        """Return whether a layer is left to the Triton kernel, which is told once for each reason."""
        reasons = {
            "attention sinks, which its prefill kernels ignore": way.sinks is not None,
            f"keys of width {way.heads[2]} and values of width {value_dim}": way.heads[2] != value_dim,
            f"{way.dtype}, which its prefill kernels do not take": way.dtype not in DTYPES,
        }
        found = {why for why, holds in reasons.items() if holds}
        for why in found - self._left:
            logger.warning("flashinfer: the Triton kernel runs the attention of layers with %s", why)
        self._left |= found
        return bool(found)

    def _parts_of(self, batch: PackedBatch, page_size: int) -> list[tuple[list[Segment], PageIndices]]:
        """Return the chains and the trees of a pass with what is read of the cache for them; made once for all layers."""
        if self._parts is None or self._parts[0] is not batch:
            kinds = [
                [s for s in batch.segments if (s.tree_mask is None) == is_chain] for is_chain in (True, False)
            ]
            shared = self.cache.shared
            self._parts = (
                batch,
                [(found, PageIndices.of(found, page_size, shared)) for found in kinds if found],
            )
        return self._parts[1]

    def _plan(
        self, way: _Way, batch: PackedBatch, segments: list[Segment], part: PageIndices, page_size: int
    ) -> Any:
        """Return the wrapper of layers that attend in a way, planned for this pass."""
        found = self._plans.get(way)
        if found is None:
            wrapper = self._make(self._workspace, "NHD")
            found = self._plans[way] = _Planned(wrapper, torch.cuda.Event())
        if found.batch is batch:
            return found.wrapper
        found.sent.synchronize()
        device = self._workspace.device
        found.wrapper.plan(
            part.qo_indptr,
            part.kv_indptr,
            part.kv_indices,
            part.last_page_lens,
            *way.heads,
            page_size,
            custom_mask=tree_mask(segments, way.window).to(device) if way.is_tree else None,
            causal=not way.is_tree,
            sm_scale=way.scale,
            window_left=-1 if way.is_tree or way.window is None else way.window - 1,
            logits_soft_cap=way.softcap,
            q_data_type=way.dtype,
            kv_data_type=way.dtype,
        )
        found.sent.record(torch.cuda.current_stream(device))
        found.batch = batch
        return found.wrapper
