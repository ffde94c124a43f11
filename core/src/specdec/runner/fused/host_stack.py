"""The table that lets compiled code run all layers of a model in one call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from specdec.runner.fused.layer import FusedLayer
from specdec.runner.host.attention import NO_WINDOW, HostSegments
from specdec.runner.host.product import Weights
from specdec.runner.host.stack import Column, run_layers
from specdec.runner.kv_cache import KVCache

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


class HostStack:
    """Layers of one shape, prepared for `run_layers`.

    Args:
        layers: the fused layers.
        norms: weight and epsilon of each layer's two norms and of the final one.
        head_norms: per layer the weights `[2, D]` of query and key norms, or an empty array, and their epsilon.
    """

    def __init__(
        self,
        layers: Sequence[FusedLayer],
        norms: Sequence[tuple[Floats, float]],
        head_norms: Sequence[tuple[Floats, float]],
    ) -> None:
        first = layers[0]
        like = first.qkv.compact
        assert like is not None
        self._like: Weights = like
        self.layers = layers
        # Addresses stay valid as long as what they point to is kept.
        self._kept = (list(norms), list(head_norms))
        self.table = np.zeros((len(layers), len(Column)), np.int64)
        for index, layer in enumerate(layers):
            row = self.table[index]
            for column, linear in (
                (Column.QKV, layer.qkv),
                (Column.OUT, layer.out),
                (Column.GATE_UP, layer.gate_up),
                (Column.DOWN, layer.down),
            ):
                assert linear.compact is not None
                row[column] = linear.compact.ctypes.data
                if linear.host_bias is not None:
                    row[column + 4] = linear.host_bias.ctypes.data
            row[Column.POST_NORM] = norms[2 * index + 1][0].ctypes.data
            row[Column.NEXT_NORM] = norms[2 * index + 2][0].ctypes.data
            if head_norms[index][0].size:
                row[Column.HEAD_NORMS] = head_norms[index][0].ctypes.data
            row[Column.WINDOW] = NO_WINDOW if layer.window is None else layer.window
        self.first_norm, self.epsilon = norms[0]
        self.head_epsilon = head_norms[0][1]
        self._cache: KVCache | None = None

    @staticmethod
    def supports(
        layers: Sequence[FusedLayer],
        norms: Sequence[tuple[Floats, float]],
        head_norms: Sequence[tuple[Floats, float]],
    ) -> bool:
        """Return whether all layers have one shape, one stored type and one epsilon."""
        shapes = {
            (
                layer.num_heads,
                layer.num_kv_heads,
                layer.head_dim,
                layer.intermediate,
                layer.scaling,
                tuple(tuple(linear.weight.shape) for linear in layer.linears),
            )
            for layer in layers
        }
        stored = {
            None if linear.compact is None else linear.compact.dtype
            for layer in layers
            for linear in layer.linears
        }
        epsilons = {epsilon for _, epsilon in norms}
        head_epsilons = {(weights.shape, epsilon) for weights, epsilon in head_norms}
        return (
            len(shapes) == len(stored) == len(epsilons) == len(head_epsilons) == 1
            and None not in stored
            and all(
                linear.compact is not None and linear.compact.flags.c_contiguous
                for layer in layers
                for linear in layer.linears
            )
        )

    def max_rows(self) -> int:
        """The most rows of a pass that the compiled products are the fastest way for."""
        return min(linear.max_product_rows for layer in self.layers for linear in layer.linears)

    def run(
        self,
        x: Floats,
        cache: KVCache,
        cos: Floats,
        sin: Floats,
        positions: Ints,
        slots: Ints,
        segments: HostSegments,
        aux_places: Ints,
        aux: Floats,
        query: Floats,
        attended: Floats,
        activated: Floats,
        normed: Floats,
    ) -> None:
        """Run all layers on `x [T, H]`; see `run_layers`."""
        stored = self.bind(cache)
        layer = self.layers[0]
        run_layers(
            x, self.table, self.first_norm, self.epsilon, self.head_epsilon, np.float32(layer.scaling),
            layer.num_kv_heads, self._like, stored, cache.num_slots, cos, sin, positions, slots, segments.table,
            segments.visible, aux_places, aux, query, attended, activated, normed,
        )  # fmt: skip

    def bind(self, cache: KVCache) -> npt.NDArray[np.float32] | npt.NDArray[np.uint16]:
        """Point the table at a cache; returns an array of its type."""
        if cache is not self._cache:
            for row, layer in zip(self.table, self.layers, strict=True):
                keys, values = cache.host_rows(layer.index)
                row[Column.KEYS], row[Column.VALUES] = keys.ctypes.data, values.ctypes.data
            self._cache = cache
        return cache.host_rows(self.layers[0].index)[0]
