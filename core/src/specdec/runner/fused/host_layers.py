"""Fused layers for small passes on the host: four products and four compiled loops per layer.

This path runs the passes that `run_pass` does not: more rows than its products are fast for, or layers of several
shapes. Arithmetic is float32 throughout; weights and cache may be stored as bfloat16.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from specdec.runner.fused.host_stack import Norm
from specdec.runner.fused.layer import FusedLayer
from specdec.runner.fused.norm import FastNorm
from specdec.runner.fused.pieces import pass_slots
from specdec.runner.fused.rotary import RotaryTable
from specdec.runner.host.attention import NO_WINDOW, attend, scratch_for
from specdec.runner.host.elementwise import add_norm, norm, rotate_and_store, silu_multiply
from specdec.runner.host.segments import HostSegments, small_pass
from specdec.runner.host.threads import is_available, use_threads
from specdec.runner.kv_cache import KVCache
from specdec.runner.packed import PackedBatch

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


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
        final_norm: the norm after the layers.
        rotary: rotary factors.
    """

    def __init__(self, layers: list[FusedLayer], final_norm: FastNorm, rotary: RotaryTable) -> None:
        self._layers = layers
        self._rotary = rotary
        self.norms = host_norms(layers, final_norm)
        self.head_norms = [head_norms(layer) for layer in layers]
        self._hidden_size = final_norm.weight.shape[0]
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
        """Return the segments of a pass if this path can run it, else None."""
        return small_pass(batch)

    def forward(
        self,
        x: torch.Tensor,
        batch: PackedBatch,
        segments: HostSegments,
        cache: KVCache,
        aux_ids: tuple[int, ...],
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        """Return the final norm's output `[T, H]` and the inputs of layers `aux_ids`; overwrites `x [T, H]` float32."""
        num_rows = x.shape[0]
        buffers = self._buffers.get(num_rows)
        if buffers is None:
            buffers = self._buffers[num_rows] = _Buffers(num_rows, self._layers[0], self._hidden_size)
        cos, sin = self._rotary.host_tables(max(s.kv_len for s in batch.segments))
        positions, slots = batch.positions.numpy(), pass_slots(batch)
        residual = x.numpy()
        aux: dict[int, torch.Tensor] = {}
        weight, epsilon = self.norms[0]
        norm(residual, weight, epsilon, buffers.normed)
        scratch = scratch_for(segments.table, buffers.query.shape[1], self._layers[0].num_kv_heads)
        for index, layer in enumerate(self._layers):
            if index in aux_ids:
                aux[index] = x.clone()
            heads = layer.qkv.host(buffers.normed).reshape(num_rows, -1, layer.head_dim)
            keys, values = cache.host_rows(layer.index)
            factors, head_epsilon = self.head_norms[index]
            rotate_and_store(
                heads, cos, sin, positions, slots, factors, head_epsilon, keys, values, buffers.query
            )  # fmt: skip
            window = NO_WINDOW if layer.window is None else layer.window
            attend(
                buffers.query, keys, values, segments.table, segments.visible, window, np.float32(layer.scaling),
                scratch, buffers.attended,
            )  # fmt: skip
            weight, epsilon = self.norms[2 * index + 1]
            add_norm(residual, layer.out.host(buffers.attended_rows), weight, epsilon, buffers.normed)
            silu_multiply(layer.gate_up.host(buffers.normed), buffers.activated)
            weight, epsilon = self.norms[2 * index + 2]
            add_norm(residual, layer.down.host(buffers.activated), weight, epsilon, buffers.normed)
        if len(self._layers) in aux_ids:
            aux[len(self._layers)] = x
        return torch.from_numpy(buffers.normed.copy()), aux


def host_norms(layers: list[FusedLayer], final_norm: FastNorm) -> list[Norm]:
    """Return weight and epsilon of each layer's two norms (models always have both) and of the final norm."""
    norms = [n for layer in layers for n in (layer.input_norm, layer.post_norm)] + [final_norm]
    return [(n.weight.float().numpy(), n.epsilon) for n in norms if n is not None]


def head_norms(layer: FusedLayer) -> Norm:
    """Return the weights `[2, D]` of a layer's query and key norms, or an empty array, and their epsilon."""
    if layer.query_norm is None or layer.key_norm is None:
        return np.empty((0, 0), np.float32), 0.0
    weights = np.stack((layer.query_norm.weight.float().numpy(), layer.key_norm.weight.float().numpy()))
    return weights, layer.query_norm.epsilon
