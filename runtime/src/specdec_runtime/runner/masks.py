"""Attention masks of a segment: causal, windowed, tree."""

from __future__ import annotations

import torch

from specdec_runtime.interfaces.forward import Segment

_TEMPLATE_ROWS = 64


class MaskMaker:
    """Makes additive masks `[num_rows, kv_len - first_key]`; masks of short chains come from one template."""

    def __init__(self, max_context: int, dtype: torch.dtype, device: torch.device) -> None:
        self._max_context = max_context
        self._dtype = dtype
        self._device = device
        self._templates: dict[int | None, torch.Tensor] = {}

    def make(self, segment: Segment, first_key: int, window: int | None) -> torch.Tensor:
        """Return the mask of a segment over the keys from `first_key` on: 0 where a key is visible, else -inf."""
        if segment.tree_mask is not None:
            return self._tree(segment, first_key, window)
        if segment.num_rows <= _TEMPLATE_ROWS and segment.num_cached <= self._max_context:
            template = self._templates.get(window)
            if template is None:
                template = self._templates[window] = self._chain(
                    min(_TEMPLATE_ROWS, self._max_context), -self._max_context, window
                )
            offset = self._max_context - segment.num_cached + first_key
            end = self._max_context + segment.num_rows
            mask = template[: segment.num_rows, offset:end]
            # torch's memory-efficient attention on GPUs wants the pointer aligned, which a view at any offset is not. One row
            # counts as contiguous wherever it begins, so `contiguous` would return it.
            return mask if mask.device.type == "cpu" else mask.clone()
        return self._chain(segment.num_rows, first_key - segment.num_cached, window)

    def _chain(self, num_rows: int, first_offset: int, window: int | None) -> torch.Tensor:
        rows = torch.arange(num_rows, device=self._device)[:, None]
        keys = torch.arange(first_offset, num_rows, device=self._device)[None, :]
        return self._additive(_visible(rows, keys, window))

    def _tree(self, segment: Segment, first_key: int, window: int | None) -> torch.Tensor:
        assert segment.tree_mask is not None and segment.depths is not None
        num_common = segment.num_cached - segment.num_branched
        before = torch.arange(first_key, num_common, device=self._device) - num_common
        depths, visible = segment.depths.to(self._device)[:, None], segment.tree_mask.to(self._device)
        if window is not None:
            # In a tree a row sees its ancestors and itself, one per depth.
            visible = visible & (visible.cumsum(1) - 1 > depths - window)
        return self._additive(torch.cat((_visible(depths, before[None, :], window), visible), 1))

    def _additive(self, visible: torch.Tensor) -> torch.Tensor:
        zeros = torch.zeros(visible.shape, dtype=self._dtype, device=self._device)
        return zeros.masked_fill_(~visible, float("-inf"))


def _visible(rows: torch.Tensor, keys: torch.Tensor, window: int | None) -> torch.Tensor:
    visible = keys <= rows
    return visible if window is None else visible & (keys > rows - window)
