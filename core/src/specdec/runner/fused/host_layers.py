"""The fused layers of small passes on the host: one compiled call, or four products and four compiled loops per layer.

Arithmetic is float32 throughout; weights and cache may be stored as bfloat16.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from specdec.runner.fused.host_stack import HostStack
from specdec.runner.fused.layer import FusedLayer
from specdec.runner.fused.norm import FastNorm
from specdec.runner.fused.rotary import RotaryTable
from specdec.runner.host.attention import (
    NO_WINDOW,
    HostSegments,
    attend,
    host_segments,
    is_available,
    use_threads,
)
from specdec.runner.host.elementwise import add_norm, norm, rotate_and_store, silu_multiply
from specdec.runner.kv_cache import KVCache
from specdec.runner.packed import PackedBatch

Floats = npt.NDArray[np.float32]
_MAX_PASS_ROWS = 128


class _Buffers:
    """Scratch memory for passes of one size."""

    def __init__(self, num_rows: int, layer: FusedLayer, hidden_size: int) -> None:
        self.normed = np.empty((num_rows, hidden_size), np.float32)
        self.query = np.empty((num_rows, layer.num_heads, layer.head_dim), np.float32)
        self.attended = np.empty((num_rows, layer.num_heads, layer.head_dim), np.float32)
        self.activated = np.empty((num_rows, layer.intermediate), np.float32)
        self.attended_rows = self.attended.reshape(num_rows, -1)


class HostLayers:
    """All layers of a model and its final norm.

    Args:
        layers: the fused layers.
        final_norm: the norm after them.
        rotary: rotary factors.
    """

    def __init__(self, layers: list[FusedLayer], final_norm: FastNorm, rotary: RotaryTable) -> None:
        self._layers = layers
        self._rotary = rotary
        norms = [n for layer in layers for n in (layer.input_norm, layer.post_norm)] + [final_norm]
        self._norms = [(n.weight.float().numpy(), n.epsilon) for n in norms]
        self._head_norms = [_head_norms(layer) for layer in layers]
        self._hidden_size = final_norm.weight.shape[0]
        self._stack: HostStack | None = None
        if HostStack.supports(layers, self._norms, self._head_norms):
            self._stack = HostStack(layers, self._norms, self._head_norms)
            self._max_stack_rows = self._stack.max_rows()
        self._buffers: dict[int, _Buffers] = {}
        use_threads()

    @staticmethod
    def supports(layers: list[FusedLayer], device: torch.device, dtype: torch.dtype) -> bool:
        """Return whether this path can run these layers here."""
        is_silu = all(layer.is_silu for layer in layers)
        return (
            device.type == "cpu" and dtype in (torch.float32, torch.bfloat16) and is_silu and is_available()
        )

    def segments(self, batch: PackedBatch) -> HostSegments | None:
        """Return the segments of a pass if this path is for it."""
        if batch.token_ids.shape[0] > _MAX_PASS_ROWS:
            return None
        segments = host_segments(batch)
        if (
            segments is not None
            and segments.visible.size
            and any(layer.window is not None for layer in self._layers)
        ):
            return None
        return segments

    @property
    def can_chain(self) -> bool:
        """Whether all layers run in one compiled call."""
        return self._stack is not None

    def chain_parts(self, num_rows: int, length: int) -> tuple[HostStack, _Buffers, Floats, Floats]:
        """Return the stack, scratch for passes of `num_rows` rows, and rotary tables for positions below `length`."""
        assert self._stack is not None
        return self._stack, self._scratch(num_rows), *self._rotary.host_tables(length)

    def _scratch(self, num_rows: int) -> _Buffers:
        buffers = self._buffers.get(num_rows)
        if buffers is None:
            buffers = self._buffers[num_rows] = _Buffers(num_rows, self._layers[0], self._hidden_size)
        return buffers

    def forward(
        self,
        x: torch.Tensor,
        batch: PackedBatch,
        segments: HostSegments,
        cache: KVCache,
        aux_ids: tuple[int, ...],
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        """Return the final norm's output `[T, H]` and the inputs of the layers `aux_ids`; `x [T, H]` float32 is overwritten."""
        num_rows = x.shape[0]
        buffers = self._scratch(num_rows)
        cos, sin = self._rotary.host_tables(max(s.kv_len for s in batch.segments))
        positions = batch.positions.numpy()
        rows, counts, first_slots, cached = segments.table
        slots = positions + first_slots[0] if batch.slots is None else batch.slots.numpy()
        if batch.slots is None and segments.visible.size:
            start = first_slots[0] + cached[0]
            slots = np.arange(start, start + num_rows)
        residual = x.numpy()
        if self._stack is not None and num_rows <= self._max_stack_rows:
            places = np.full(len(self._layers), -1)
            places[list(aux_ids)] = np.arange(len(aux_ids))
            inputs = np.empty((len(aux_ids), num_rows, self._hidden_size), np.float32)
            self._stack.run(
                residual, cache, cos, sin, positions, slots, segments, places, inputs, buffers.query, buffers.attended,
                buffers.activated, buffers.normed,
            )  # fmt: skip
            return torch.from_numpy(buffers.normed.copy()), {
                k: torch.from_numpy(inputs[place]) for place, k in enumerate(aux_ids)
            }
        aux: dict[int, torch.Tensor] = {}
        weight, epsilon = self._norms[0]
        norm(residual, weight, epsilon, buffers.normed)
        for index, layer in enumerate(self._layers):
            if index in aux_ids:
                aux[index] = x.clone()
            heads = layer.qkv.host(buffers.normed).reshape(num_rows, -1, layer.head_dim)
            keys, values = cache.host_rows(layer.index)
            head_norms, head_epsilon = self._head_norms[index]
            rotate_and_store(
                heads, cos, sin, positions, slots, head_norms, head_epsilon, keys, values, buffers.query
            )  # fmt: skip
            window = NO_WINDOW if layer.window is None else layer.window
            attend(
                buffers.query, keys, values, rows, counts, first_slots, cached, segments.visible, window,
                np.float32(layer.scaling), buffers.attended,
            )  # fmt: skip
            weight, epsilon = self._norms[2 * index + 1]
            add_norm(residual, layer.out.host(buffers.attended_rows), weight, epsilon, buffers.normed)
            silu_multiply(layer.gate_up.host(buffers.normed), buffers.activated)
            weight, epsilon = self._norms[2 * index + 2]
            add_norm(residual, layer.down.host(buffers.activated), weight, epsilon, buffers.normed)
        return torch.from_numpy(buffers.normed.copy()), aux


def _head_norms(layer: FusedLayer) -> tuple[Floats, float]:
    if layer.query_norm is None or layer.key_norm is None:
        return np.empty((0, 0), np.float32), 0.0
    weights = np.stack((layer.query_norm.weight.float().numpy(), layer.key_norm.weight.float().numpy()))
    return weights, layer.query_norm.epsilon
