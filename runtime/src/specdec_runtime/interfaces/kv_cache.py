"""Keys and values of every layer, one slot per token."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class LayerShape:
    """Shape of one token's keys and values in one layer."""

    num_kv_heads: int
    key_dim: int
    value_dim: int
    dtype: torch.dtype
    device: torch.device | None = None
    """The layer's device; None for the cache's device."""

    @property
    def num_bytes(self) -> int:
        """Bytes per token."""
        return self.num_kv_heads * (self.key_dim + self.value_dim) * self.dtype.itemsize


class KVCache:
    """Key and value tensors `[num_slots, Hkv, D]` per layer; a layer is allocated on its first write."""

    def __init__(self, num_slots: int, device: torch.device) -> None:
        self.num_slots = num_slots
        self.device = device
        self.shapes: dict[int, LayerShape] = {}
        self.keys: dict[int, torch.Tensor] = {}
        self.values: dict[int, torch.Tensor] = {}
        self.shared: dict[int, tuple[int, int]] = {}
        """By `Segment.first_slot` of requests whose first rows are where others read them too: the slot of position 0, and how
        many they are. Only an attention with a `slot_pool` reads it."""
        self.compacts: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], bool] | None = None
        """An attention's own way to move rows of one of these, which says whether it has."""
        self._groups: list[torch.Tensor] = []
        """`[n, num_slots, Hkv, D]`: of layers that were allocated together keys, values or both, so that rows move at once."""

    def allocate(self, layer: int, shape: LayerShape) -> None:
        """Allocate the tensors of one layer. On the host, the system commits pages only when they are written."""
        self._allocate([layer], shape)

    def allocate_all(self, shapes: Mapping[int, LayerShape]) -> None:
        """Allocate the tensors of many layers, those of one shape together."""
        for shape in dict.fromkeys(shapes.values()):
            self._allocate([layer for layer, each in shapes.items() if each == shape], shape)

    def _allocate(self, layers: Sequence[int], shape: LayerShape) -> None:
        count, dims = len(layers), [shape.key_dim, shape.value_dim]
        sizes = [(2 * count, dims[0])] if dims[0] == dims[1] else [(count, dim) for dim in dims]
        rows, device = (self.num_slots, shape.num_kv_heads), shape.device or self.device
        groups = [torch.empty((n, *rows, dim), dtype=shape.dtype, device=device) for n, dim in sizes]
        parts = [group[place] for group in groups for place in range(len(group))]
        self._groups += groups
        self.shapes |= dict.fromkeys(layers, shape)
        self.keys |= zip(layers, parts[:count], strict=True)
        self.values |= zip(layers, parts[count:], strict=True)

    def free(self) -> None:
        """Let all tensors go; `allocate_all(shapes)` makes new ones."""
        self.keys.clear()
        self.values.clear()
        self._groups.clear()

    def ensure(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Allocate a layer before its first `keys` and `values` `[T, Hkv, D]` are written, if needed."""
        if layer not in self.keys:
            device = None if keys.device == self.device else keys.device
            sizes = keys.shape[1], keys.shape[2], values.shape[2]
            self.allocate(layer, LayerShape(*sizes, keys.dtype, device))

    def write(
        self,
        layer: int,
        keys: torch.Tensor,
        values: torch.Tensor,
        slots: torch.Tensor | slice,
    ) -> None:
        """Store `keys` and `values` `[T, Hkv, D]` at `slots`."""
        self.ensure(layer, keys, values)
        if isinstance(slots, slice):
            self.keys[layer][slots] = keys
            self.values[layer][slots] = values
        else:
            self.keys[layer].index_copy_(0, slots, keys)
            self.values[layer].index_copy_(0, slots, values)

    def copy(self, source: int, destination: int, num_rows: int) -> None:
        """Copy `num_rows` consecutive rows of every layer; the ranges may overlap."""
        overlaps = abs(source - destination) < num_rows
        for group in self._groups:
            rows = group[:, source : source + num_rows]
            group[:, destination : destination + num_rows] = rows.clone() if overlaps else rows

    def gather(self, first_slots: torch.Tensor, paths: torch.Tensor) -> None:
        """Move the rows of paths in every layer; see `SlotCache.gather`."""
        for group in self._groups:
            given = first_slots.to(group.device), paths.to(group.device)
            if self.compacts is None or not self.compacts(group, *given):
                first, steps = given[0][:, None], torch.arange(paths.shape[1], device=group.device)
                group[:, first + torch.where(given[1] < 0, -1, steps)] = group[:, first + given[1]]

    @property
    def bytes_by_device(self) -> dict[torch.device, int]:
        """Bytes per token on each device."""
        found: dict[torch.device, int] = {}
        for shape in self.shapes.values():
            device = shape.device or self.device
            found[device] = found.get(device, 0) + shape.num_bytes
        return found

    @property
    def bytes_per_token(self) -> int:
        """Bytes per token, summed over all layers allocated so far."""
        return sum(shape.num_bytes for shape in self.shapes.values())
