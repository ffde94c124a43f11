"""Stands for the package `flashinfer`: the call contract of its prefill wrapper, checked, and its attention in torch.

It knows nothing of a pass: what it attends to follows from the arrays of `plan` alone, as the library's documentation says.
"""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from types import ModuleType
from weakref import WeakSet

import numpy as np
import torch

PREFILL = "BatchPrefillWithPagedKVCacheWrapper"
DTYPES = (torch.float16, torch.bfloat16)


class Event:
    """Stands for `torch.cuda.Event`: the plans that are on their way to the device when it is recorded."""

    on_the_way: WeakSet[Wrapper] = WeakSet()

    def __init__(self) -> None:
        self._before: WeakSet[Wrapper] = WeakSet()

    def record(self, stream: object) -> None:
        self._before = Event.on_the_way.copy()

    def synchronize(self) -> None:
        Event.on_the_way -= self._before


class Wrapper:
    """`BatchPrefillWithPagedKVCacheWrapper`, without graphs.

    Attributes:
        plans: the named arguments of every plan of all wrappers, for tests.
        num_runs: of all wrappers.
    """

    plans: list[dict[str, object]] = []
    num_runs = 0

    def __init__(self, float_workspace_buffer: torch.Tensor, kv_layout: str = "NHD") -> None:
        assert kv_layout == "NHD", "the stub computes this layout alone"
        assert float_workspace_buffer.dtype == torch.uint8
        assert float_workspace_buffer.numel() >= 128 * 2**20
        self.device = float_workspace_buffer.device
        self.is_planned = False

    def plan(
        self,
        qo_indptr: torch.Tensor,
        paged_kv_indptr: torch.Tensor,
        paged_kv_indices: torch.Tensor,
        paged_kv_last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        head_dim_vo: int | None = None,
        custom_mask: torch.Tensor | None = None,
        packed_custom_mask: torch.Tensor | None = None,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        sm_scale: float | None = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        q_data_type: str | torch.dtype = "float16",
        kv_data_type: str | torch.dtype | None = None,
    ) -> None:
        assert packed_custom_mask is None, "the library would take offsets in bits for offsets in bytes"
        assert self not in Event.on_the_way, (
            "the last plan's numbers on the host are overwritten before they are sent"
        )
        Event.on_the_way.add(self)
        arrays = qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len
        for array in arrays:
            assert array.dtype == torch.int32
            assert array.dim() == 1
            assert array.is_contiguous()
            assert array.device.type == "cpu", "the library would wait for a copy"
        self.starts, self.page_starts, self.pages, self.last = (array.numpy().copy() for array in arrays)
        size = len(self.starts) - 1
        assert size > 0
        assert len(self.page_starts) == size + 1
        assert len(self.last) == size
        assert self.starts[0] == self.page_starts[0] == 0
        assert len(self.pages) == self.page_starts[-1]
        assert (np.diff(self.page_starts) > 0).all()
        assert ((self.last >= 1) & (self.last <= page_size)).all()
        self.lengths = (np.diff(self.page_starts) - 1) * page_size + self.last
        assert (np.diff(self.starts) <= self.lengths).all()
        assert num_qo_heads % num_kv_heads == 0
        assert q_data_type in DTYPES
        assert kv_data_type == q_data_type
        assert window_left >= -1
        self.bits, self.bit_starts = None, None
        if custom_mask is not None:
            assert custom_mask.dtype == torch.bool
            assert custom_mask.device == self.device, "it is packed on the device"
            assert not causal
            assert window_left == -1, "a window of rows is not one of a tree's positions"
            flat, sizes = custom_mask.cpu().numpy().reshape(-1), np.diff(self.starts) * self.lengths
            assert len(flat) == sizes.sum()
            packed = [np.packbits(part, bitorder="little") for part in np.split(flat, sizes.cumsum()[:-1])]
            self.bits = np.concatenate(packed)
            self.bit_starts = np.cumsum([0, *map(len, packed)])
        self.heads = num_qo_heads, num_kv_heads, head_dim_qk
        self.page_size, self.causal, self.window_left = page_size, causal, window_left
        self.scale = head_dim_qk**-0.5 if sm_scale is None else sm_scale
        self.cap, self.dtype, self.is_planned = logits_soft_cap or 0.0, q_data_type, True
        Wrapper.plans.append(
            {"page_size": page_size, "causal": causal, "window_left": window_left, "pages": self.pages}
        )

    def run(
        self,
        q: torch.Tensor,
        paged_kv_cache: tuple[torch.Tensor, torch.Tensor],
        *,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        assert self.is_planned, "plan comes before run"
        Wrapper.num_runs += 1
        heads, kv_heads, dim = self.heads
        keys, values = paged_kv_cache
        assert q.shape == (self.starts[-1], heads, dim)
        assert q.stride(-1) == 1
        assert {q.device, keys.device, values.device} == {self.device}
        assert {q.dtype, keys.dtype, values.dtype} == {self.dtype}
        for part in (keys, values):
            assert part.shape[1:] == (self.page_size, kv_heads, dim)
            assert part.is_contiguous()
        if out is None:
            out = torch.zeros(q.shape, dtype=q.dtype, device=q.device)
        assert (out.shape, out.dtype, out.device) == (q.shape, q.dtype, q.device)
        assert out.is_contiguous()
        query, keys, values = (part.cpu().float() for part in (q, keys, values))
        done = torch.cat([self._attend(b, query, keys, values) for b in range(len(self.last))])
        out.copy_(done.to(q.dtype))
        return out

    def _attend(self, b: int, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        query = query[self.starts[b] : self.starts[b + 1]]
        count, length = len(query), int(self.lengths[b])
        pages = self.pages[self.page_starts[b] : self.page_starts[b + 1]]
        group = self.heads[0] // self.heads[1]
        keys, values = (
            part[pages].flatten(0, 1)[:length].repeat_interleave(group, 1) for part in (keys, values)
        )
        scores = torch.einsum("nhd,lhd->hnl", query, keys) * self.scale
        if self.cap > 0:
            scores = self.cap * torch.tanh(scores / self.cap)
        rows, columns = np.arange(count)[:, None], np.arange(length)[None, :]
        seen = np.ones((count, length), bool)
        if self.bits is not None:
            offsets = rows * length + columns
            seen = self.bits[self.bit_starts[b] + offsets // 8] >> (offsets % 8) & 1 != 0
        if self.causal:
            seen &= columns <= length - count + rows
        if self.window_left >= 0:
            seen &= columns + count + self.window_left >= length + rows
        weights = scores.masked_fill(~torch.from_numpy(seen), -torch.inf).softmax(-1)
        return torch.einsum("hnl,lhd->nhd", weights, values)


def module(**names: object) -> ModuleType:
    """Return the package; `names` are what it has."""
    made = ModuleType("flashinfer")
    made.__spec__ = ModuleSpec("flashinfer", None)
    vars(made).update(__version__="0.0-stub", **names)
    return made
