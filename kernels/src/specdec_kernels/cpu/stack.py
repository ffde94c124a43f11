"""Tables with which compiled code runs a whole model or head in one call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from specdec.interfaces import KVCache
from specdec_kernels.cpu.compiled.members import index_by_members
from specdec_kernels.cpu.ends import Ends
from specdec_kernels.cpu.linear import Product
from specdec_kernels.cpu.loops.attention import NO_WINDOW
from specdec_kernels.cpu.loops.forward import run_pass
from specdec_kernels.cpu.loops.frame import Likes, Number, Part
from specdec_kernels.cpu.loops.product import Weights, widened
from specdec_kernels.cpu.loops.quantized import Packed
from specdec_kernels.cpu.loops.segments import SegmentArrays
from specdec_kernels.cpu.loops.stack import Column
from specdec_kernels.cpu.stored import Stored, stored_rows
from specdec_kernels.layers.layer import FusedLayer

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Norm = tuple[Floats, float]
"""Weight and epsilon."""

index_by_members()


class CompiledStack:
    """Layers of one shape with the parts before and after them, prepared for `run_pass`.

    Args:
        layers: the fused layers.
        norms: each layer's two norms, then the final norm; None for a norm that a head does not have.
        head_norms: per layer, the weights `[2, D]` of query and key norms, or an empty array, and their epsilon.
        ends: embedding and output projection.
    """

    def __init__(
        self,
        layers: Sequence[FusedLayer[Product]],
        norms: Sequence[Norm | None],
        head_norms: Sequence[Norm],
        ends: Ends,
    ) -> None:
        self.layers = layers
        self.num_logits = ends.head.shape[0]
        self.hidden_size = ends.embedding.shape[1]
        inner = [weight for weight in _layer_weights(layers, ends) if weight is not None]
        is_mixed = len({weight.dtype for weight in inner}) > 1
        distinct = {_address(weight): weight for weight in (*inner, ends.embedding, ends.head)}
        self.num_weight_bytes = sum(weight.nbytes for weight in distinct.values())
        self.max_rows = min(linear.max_product_rows for layer in layers for linear in layer.linears)
        """Maximum number of rows for which the compiled products are the fastest way."""
        # The tables hold addresses, so the arrays must be kept alive.
        self._kept: list[object] = [list(norms), list(head_norms), ends]

        def stored(weight: Weights | Packed | None) -> int:
            """Return the address of a weight of the layers, widened to float32 if their dtypes are mixed."""
            if weight is not None and is_mixed:
                wide = widened(weight)  # type: ignore[arg-type]  # those of 8 or 4 bits are of one type, see `supports`
                self._kept.append(wide)
                return _address(wide)
            return _address(weight)

        self.likes = Likes(ends.embedding, np.empty((0, 0), np.float32) if is_mixed else inner[0], ends.head)
        self.table = np.zeros((len(layers), len(Column)), np.int64)
        for index, layer in enumerate(layers):
            row = self.table[index]
            for column, linear in (
                (Column.QKV, layer.qkv),
                (Column.OUT, layer.out),
                (Column.GATE_UP, layer.gate_up),
                (Column.DOWN, layer.down),
            ):
                row[column] = stored(linear.compact)
                row[column + 4] = _address(linear.bias_array)
            row[Column.POST_NORM] = _weight_address(norms[2 * index + 1])
            row[Column.NEXT_NORM] = _weight_address(norms[2 * index + 2])
            if head_norms[index][0].size:
                row[Column.HEAD_NORMS] = _weight_address(head_norms[index])
            row[Column.WINDOW] = NO_WINDOW if layer.window is None else layer.window
        self.frame = np.zeros(len(Part), np.int64)
        first = layers[0]
        for part, value in (
            (Part.EMBEDDING, _address(ends.embedding)),
            (Part.HEAD, _address(ends.head)),
            (Part.HEAD_BIAS, _address(ends.head_bias)),
            (Part.FIRST_NORM, _weight_address(norms[0])),
            (Part.JOIN, stored(ends.join)),
            (Part.JOIN_BIAS, _address(ends.join_bias)),
            (Part.EMBED_NORM, _address(ends.embed_norm)),
            (Part.FEATURE_NORM, _address(ends.feature_norm)),
            (Part.HIDDEN, self.hidden_size),
            (Part.NUM_LOGITS, self.num_logits),
            (Part.NUM_HEADS, first.num_heads),
            (Part.NUM_KV_HEADS, first.num_kv_heads),
            (Part.HEAD_DIM, first.head_dim),
            (Part.INTERMEDIATE, first.intermediate),
            (Part.NUM_IDS, ends.embedding.shape[0]),
            (Part.TAKES_FEATURES, ends.takes_features),
            (Part.IS_FEATURE_FIRST, ends.is_feature_first),
            (Part.IS_NORMED_RESIDUAL, ends.is_normed_residual),
            (Part.IS_NORMED_STATE, ends.is_normed_state),
            (
                Part.IS_ROUNDED,
                not is_mixed
                and ends.head.dtype == inner[0].dtype
                and all(linear.is_rounded for layer in layers for linear in layer.linears),
            ),
            (Part.GROUP, max(linear.group for layer in layers for linear in layer.linears)),
        ):
            self.frame[part] = value
        self.numbers = np.zeros(len(Number))
        self.numbers[Number.EPSILON] = next((norm[1] for norm in norms if norm is not None), 0.0)
        self.numbers[Number.HEAD_EPSILON] = head_norms[0][1]
        self.numbers[Number.SCALING] = first.scaling
        self._cache: KVCache | None = None
        self._stored: Stored = np.empty((0, 0, 0), np.float32)
        self._nowhere = np.full(len(layers) + 1, -1)
        self._no_features = np.empty((0, 0), np.float32)

    @staticmethod
    def supports(
        layers: Sequence[FusedLayer[Product]],
        norms: Sequence[Norm | None],
        head_norms: Sequence[Norm],
        ends: Ends,
    ) -> bool:
        """Return whether all layers have one shape, SiLU and compact weights, and all norms one epsilon."""
        shapes = {
            (
                layer.num_heads,
                layer.num_kv_heads,
                layer.head_dim,
                layer.intermediate,
                layer.scaling,
                tuple(tuple(linear.weight.shape) for linear in (layer.out, layer.gate_up, layer.down)),
            )
            for layer in layers
        }
        weights = _layer_weights(layers, ends)
        kinds = {
            (weight.dtype, linear.group)
            for layer in layers
            for linear in layer.linears
            if (weight := linear.compact) is not None
        }
        is_packed = any(dtype.itemsize == 1 for dtype, _ in kinds)
        epsilons = {norm[1] for norm in norms if norm is not None}
        head_epsilons = {(norm[0].shape, norm[1]) for norm in head_norms}
        return (
            len(shapes) == len(head_epsilons) == 1
            and len(epsilons) <= 1
            and all(weight is not None and weight.flags.c_contiguous for weight in weights)
            and (len(kinds) == 1 or not is_packed)
            and all(layer.is_silu for layer in layers)
        )

    def run(
        self,
        tokens: Ints,
        features: Floats | None,
        cache: KVCache,
        rotary: tuple[Floats, Floats],
        positions: Ints,
        slots: Ints,
        segments: SegmentArrays,
        aux_ids: Sequence[int],
        logits_rows: Ints,
    ) -> tuple[Floats, Floats, Floats]:
        """Run a pass; see `run_pass`.

        Returns:
            logits `[R, V]`, states `[T, H]` and the inputs `[A, T, H]` of the layers `aux_ids`.
        """
        num_rows = len(tokens)
        states = np.empty((num_rows, self.hidden_size), np.float32)
        logits = np.empty((len(logits_rows), self.num_logits), np.float32)
        kept = list(dict.fromkeys(aux_ids))  # a layer may be requested twice
        aux = np.empty((len(kept), num_rows, self.hidden_size), np.float32)
        places = self._nowhere
        if kept:
            places = places.copy()
            places[kept] = np.arange(len(kept))
        run_pass(
            tokens, self._no_features if features is None else features, self.table, self.frame, self.numbers,
            self.likes, self.bind(cache), cache.num_slots, *rotary, positions, slots, segments.table, segments.visible,
            places, aux, logits_rows, states, logits,
        )  # fmt: skip
        return logits, states, aux if len(kept) == len(aux_ids) else aux[[kept.index(k) for k in aux_ids]]

    def bind(self, cache: KVCache) -> Stored:
        """Point the table at a cache; returns an array of the cache's dtype."""
        if cache is not self._cache:
            for row, layer in zip(self.table, self.layers, strict=True):
                keys, values = stored_rows(cache, layer.index)
                row[Column.KEYS], row[Column.VALUES] = keys.ctypes.data, values.ctypes.data
            self._cache, self._stored = cache, stored_rows(cache, self.layers[0].index)[0]
        return self._stored


def head_norms(layer: FusedLayer[Product]) -> Norm:
    """Return the weights `[2, D]` of a layer's query and key norms, or an empty array, and their epsilon."""
    if layer.query_norm is None or layer.key_norm is None:
        return np.empty((0, 0), np.float32), 0.0
    weights = np.stack((layer.query_norm.weight.float().numpy(), layer.key_norm.weight.float().numpy()))
    return weights, layer.query_norm.epsilon


def _layer_weights(layers: Sequence[FusedLayer[Product]], ends: Ends) -> list[Weights | Packed | None]:
    """Return the weights of the layers and of the join before them; None for a weight that has no compact form."""
    weights = [linear.compact for layer in layers for linear in layer.linears]
    return weights if ends.join is None else [*weights, ends.join]


def _address(array: npt.NDArray[np.generic] | None) -> int:
    return 0 if array is None else int(array.ctypes.data)


def _weight_address(norm: Norm | None) -> int:
    return 0 if norm is None else _address(norm[0])
