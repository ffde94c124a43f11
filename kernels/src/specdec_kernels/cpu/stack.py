"""Tables with which compiled code runs a whole model or head in one call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numba
import numpy as np
import numpy.typing as npt

from specdec_kernels.attended_rows import AttendedRows
from specdec_kernels.cpu.compiled.members import index_by_members
from specdec_kernels.cpu.compiled.team import make_team
from specdec_kernels.cpu.ends import Ends, floats_of
from specdec_kernels.cpu.linear import BlockProduct, Product
from specdec_kernels.cpu.loops.attention import NO_WINDOW
from specdec_kernels.cpu.loops.blocks import Table as BlockTable
from specdec_kernels.cpu.loops.cached import attender
from specdec_kernels.cpu.loops.forward import run_pass
from specdec_kernels.cpu.loops.frame import Column, EmbeddingForm, Entry, Factor, Number, Tables
from specdec_kernels.cpu.loops.heads import head_functions
from specdec_kernels.cpu.loops.product import Weights, widened
from specdec_kernels.cpu.loops.quantized import Packed
from specdec_kernels.cpu.loops.segments import Table, Visible
from specdec_kernels.cpu.loops.weigh import weigher
from specdec_kernels.cpu.stored import stored_rows
from specdec_kernels.layers.layer import FusedLayer
from specdec_kernels.layers.parts import Activation, LayerParts, Norm
from specdec_runtime.interfaces import KVCache

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Rotary = Sequence[tuple[Floats, Floats] | None]
"""Cosines and signed sines `[P, R]` of each layer; None for one that does not encode positions."""

_FORMS = {
    np.dtype(np.float32): EmbeddingForm.FLOATS,
    np.dtype(np.uint16): EmbeddingForm.HALVES,
    np.dtype(np.int64): EmbeddingForm.BLOCKS,
}
index_by_members()


class CompiledStack:
    """Layers with the parts before and after them, prepared for `run_pass`.

    Args:
        layers: the fused layers.
        ends: embedding, output projection and the norms at both ends.
    """

    def __init__(self, layers: Sequence[FusedLayer[Product]], ends: Ends) -> None:
        self.layers = layers
        self.num_logits, self.hidden_size = ends.num_logits, ends.hidden_size
        inner = [weight for weight in _layer_weights(layers, ends) if weight is not None]
        is_mixed = len({weight.dtype for weight in inner}) > 1
        distinct = {_address(weight): weight for weight in (*inner, ends.embedding, ends.head)}
        linears = [linear for layer in layers for linear in layer.linears]
        wide = sum(linear.num_wide_bytes for linear in linears if isinstance(linear, BlockProduct))
        self.num_weight_bytes = sum(weight.nbytes for weight in distinct.values()) + wide
        self.max_rows = min(linear.max_product_rows for linear in linears)
        """Maximum number of rows for which the compiled products are the fastest way."""
        # The tables hold addresses, so the arrays must be kept alive.
        self._kept: list[object] = [ends]

        def stored(weight: Weights | Packed | BlockTable | None) -> int:
            """Return the address of a weight of the layers, widened to float32 if their dtypes are mixed."""
            if weight is not None and is_mixed:
                wide = widened(weight)  # type: ignore[arg-type]  # those of 8 or 4 bits are of one type, see `supports`
                self._kept.append(wide)
                return _address(wide)
            return _address(weight)

        def kept(array: Floats | None) -> int:
            """Return the address of an array, which is kept."""
            self._kept.append(array)
            return _address(array)

        table, factors = np.zeros((len(layers), len(Column)), np.int64), np.zeros((len(layers), len(Factor)))
        for index, layer in enumerate(layers):
            parts = layer.parts
            for column, linear in (
                (Column.QKV, layer.qkv),
                (Column.OUT, layer.out),
                (Column.GATE_UP, layer.gate_up),
                (Column.DOWN, layer.down),
            ):
                table[index, column] = stored(linear.compact)
                table[index, column + 4] = _address(linear.bias_array)
            is_last = index + 1 == len(layers)
            head_norms = _head_norms(parts)
            attended = parts.attended or AttendedRows(0, NO_WINDOW)
            for column, value in (
                (Column.ATTENDED_NORM, kept(floats_of(parts.attended_norm))),
                (Column.MLP_NORM, kept(floats_of(parts.mlp_norm))),
                (Column.MLP_OUT_NORM, kept(floats_of(parts.mlp_out_norm))),
                (
                    Column.NEXT_NORM,
                    kept(floats_of(ends.final_norm if is_last else layers[index + 1].parts.input_norm)),
                ),
                (Column.JOINT_NORMS if parts.is_joint_norm else Column.HEAD_NORMS, kept(head_norms)),
                (Column.NUM_HEAD_NORMS, 0 if head_norms is None or parts.is_joint_norm else len(head_norms)),
                (Column.WINDOW, min(parts.window or NO_WINDOW, attended.newest)),
                (Column.NUM_FIRST, attended.first),
                (Column.NUM_HEADS, parts.num_heads),
                (Column.NUM_KV_HEADS, parts.num_kv_heads),
                (Column.HEAD_DIM, parts.head_dim),
                (Column.INTERMEDIATE, layer.intermediate),
                (Column.ROTARY_WIDTH, 0 if parts.rotation is None else parts.rotation.width),
                (Column.IS_INTERLEAVED, parts.rotation is not None and parts.rotation.is_interleaved),
                (Column.ARE_KEYS_VALUES, parts.are_keys_values),
                (Column.IS_GELU, parts.activation is Activation.GELU_TANH),
                (Column.IS_PARALLEL, parts.is_parallel),
            ):
                table[index, column] = value
            factors[index, Factor.SCALING] = parts.scaling
            factors[index, Factor.SOFTCAP] = parts.softcap or 0.0
            factors[index, Factor.RESIDUAL_SCALE] = parts.residual_scale
            factors[index, Factor.OUTPUT_SCALE] = parts.output_scale
        self._team = make_team(numba.get_num_threads())
        self._frames = np.zeros((2, len(Entry)), np.int64)
        frame = self._frames[0]
        for part, value in (
            (Entry.EMBEDDING, _address(ends.embedding)),
            (Entry.HEAD, _address(ends.head)),
            (Entry.HEAD_BIAS, _address(ends.head_bias)),
            (Entry.FIRST_NORM, kept(floats_of(ends.first_norm))),
            (Entry.JOIN, stored(ends.join)),
            (Entry.JOIN_BIAS, _address(ends.join_bias)),
            (Entry.EMBED_NORM, kept(floats_of(ends.embed_norm))),
            (Entry.FEATURE_NORM, kept(floats_of(ends.feature_norm))),
            (Entry.HIDDEN, self.hidden_size),
            (Entry.NUM_LOGITS, self.num_logits),
            (Entry.NUM_IDS, ends.num_ids),
            (Entry.READS_FEATURES, ends.reads_features),
            (Entry.IS_FEATURE_FIRST, ends.is_feature_first),
            (Entry.IS_NORMED_RESIDUAL, ends.is_normed_residual),
            (Entry.IS_NORMED_STATE, ends.is_normed_state),
            (
                Entry.IS_ROUNDED,
                not is_mixed
                and ends.head.dtype == inner[0].dtype
                and all(linear.is_rounded for layer in layers for linear in layer.linears),
            ),
            (Entry.ARE_NORMS_CENTRED, any(norm.is_centred for norm in _norms(layers, ends))),
            (Entry.GROUP, max(linear.group for layer in layers for linear in layer.linears)),
            (Entry.EMBEDDING_FORM, _FORMS[ends.embedding.dtype]),
            (Entry.TEAM, self._team.ctypes.data),
            (Entry.WEIGH_LAYERS, weigher(np.empty(0, np.float32) if is_mixed else inner[0])),
            (Entry.WEIGH_HEAD, weigher(ends.head)),
        ):
            frame[part] = value
        numbers = np.zeros(len(Number))
        numbers[Number.EPSILON] = next((norm.epsilon for norm in _norms(layers, ends)), 0.0)
        numbers[Number.HEAD_EPSILON] = next((norm.epsilon for norm in _all_head_norms(layers)), 0.0)
        numbers[Number.EMBED_SCALE] = ends.embed_scale
        numbers[Number.LOGITS_SCALE] = ends.logits_scale
        numbers[Number.LOGITS_SOFTCAP] = ends.logits_softcap or 0.0
        self._frames[1] = frame
        if not is_mixed:
            self._frames[1, Entry.WEIGH_LAYERS] = weigher(inner[0], is_draft=True)
        self._frames[1, Entry.WEIGH_HEAD] = weigher(ends.head, is_draft=True)
        self.tables, self.draft_tables = (Tables(table, factors, each, numbers) for each in self._frames)
        self._cache: KVCache | None = None
        self._rotary: Rotary = []
        self._nowhere = np.full(len(layers) + 1, -1)
        self._no_features = np.empty((0, 0), np.float32)

    @staticmethod
    def supports(layers: Sequence[FusedLayer[Product]], ends: Ends) -> bool:
        """Return whether all weights are compact, those of 8 or 4 bits or in blocks of one kind, and all norms of one kind."""
        weights = _layer_weights(layers, ends)
        kinds = {
            (weight.dtype, linear.group)
            for layer in layers
            for linear in layer.linears
            if (weight := linear.compact) is not None
        }
        is_packed = any(dtype not in (np.float32, np.uint16) for dtype, _ in kinds)
        return (
            len({(norm.epsilon, norm.is_centred) for norm in _norms(layers, ends)}) <= 1
            and len({norm.epsilon for norm in _all_head_norms(layers)}) <= 1
            and not any(norm.is_centred for norm in _all_head_norms(layers))
            and not (ends.reads_features and any(layer.parts.is_parallel for layer in layers))
            and all(weight is not None and weight.flags.c_contiguous for weight in weights)
            and (len(kinds) == 1 or not is_packed)
        )

    def run(
        self,
        tokens: Ints,
        features: Floats | None,
        cache: KVCache,
        rotary: Rotary,
        positions: Ints,
        slots: Ints,
        table: Table,
        visible: Visible,
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
        if cache is not self._cache or rotary is not self._rotary:
            self.bind(cache, rotary)
        run_pass(
            tokens, self._no_features if features is None else features, self.tables, cache.num_slots, positions, slots,
            table, visible, places, aux, logits_rows, states, logits,
        )  # fmt: skip
        return logits, states, aux if len(kept) == len(aux_ids) else aux[[kept.index(k) for k in aux_ids]]

    def bind(self, cache: KVCache, rotary: Rotary) -> None:
        """Point the tables at a cache and at rotary factors."""
        if cache is not self._cache:
            for row, layer in zip(self.tables.layers, self.layers, strict=True):
                keys, values = stored_rows(cache, layer.parts.index)
                row[Column.KEYS], row[Column.VALUES] = keys.ctypes.data, values.ctypes.data
            self._frames[:, Entry.ATTEND] = attender(keys)
            self._frames[:, [Entry.SCORE, Entry.BLEND]] = head_functions(keys.dtype)
            self._cache = cache
        if rotary is not self._rotary:
            for row, factors in zip(self.tables.layers, rotary, strict=True):
                if factors is not None:
                    row[Column.COS], row[Column.SIN] = (each.ctypes.data for each in factors)
                    self._frames[:, Entry.NUM_POSITIONS] = len(factors[0])
            self._rotary = rotary  # kept alive


def _norms(layers: Sequence[FusedLayer[Product]], ends: Ends) -> Iterator[Norm]:
    """Return the norms over the hidden size."""
    norms = [ends.first_norm, ends.final_norm, ends.embed_norm, ends.feature_norm]
    for index, layer in enumerate(layers):
        parts = layer.parts
        norms += [parts.attended_norm, parts.mlp_norm, parts.mlp_out_norm]
        norms += [parts.input_norm] if index else []  # the first layer's is `Ends.first_norm`
    return (norm for norm in norms if norm is not None)


def _all_head_norms(layers: Sequence[FusedLayer[Product]]) -> Iterator[Norm]:
    for layer in layers:
        parts = layer.parts
        yield from (n for n in (parts.query_norm, parts.key_norm, parts.value_norm) if n is not None)


def _head_norms(parts: LayerParts) -> Floats | None:
    """Return the weights of a layer's norms of heads `[2 or 3, D]`, or of all heads at once `[(H + Hkv) D]`; None for none."""
    norms = [floats_of(norm) for norm in (parts.query_norm, parts.key_norm, parts.value_norm)]
    weights = [weight for weight in norms if weight is not None]
    if not weights:
        return None
    return np.concatenate(weights) if parts.is_joint_norm else np.stack(weights)


def _layer_weights(
    layers: Sequence[FusedLayer[Product]], ends: Ends
) -> list[Weights | Packed | BlockTable | None]:
    """Return the weights of the layers and of the join before them; None for a weight that has no compact form."""
    weights = [linear.compact for layer in layers for linear in layer.linears]
    return weights if ends.join is None else [*weights, ends.join]


def _address(array: npt.NDArray[np.generic] | None) -> int:
    return 0 if array is None else int(array.ctypes.data)
