"""Keys and values of every layer, one slot per token."""

from __future__ import annotations

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

    def allocate(self, layer: int, shape: LayerShape) -> None:
        """Allocate the tensors of one layer. On the host, the system commits pages only when they are written."""
        self.shapes[layer] = shape
        rows, device = (self.num_slots, shape.num_kv_heads), shape.device or self.device
        self.keys[layer] = torch.empty((*rows, shape.key_dim), dtype=shape.dtype, device=device)
        self.values[layer] = torch.empty((*rows, shape.value_dim), dtype=shape.dtype, device=device)

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
        for tensors in (self.keys, self.values):
            for tensor in tensors.values():
                rows = tensor[source : source + num_rows]
                tensor[destination : destination + num_rows] = rows.clone() if overlaps else rows

    def gather(self, sources: torch.Tensor, destinations: torch.Tensor) -> None:
        """Copy the rows `sources` `[n]` of every layer to the slots `destinations` `[n]`, which must differ."""
        for tensors in (self.keys, self.values):
            for tensor in tensors.values():
                rows = tensor[sources.to(tensor.device)]
                tensor.index_copy_(0, destinations.to(tensor.device), rows)

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
