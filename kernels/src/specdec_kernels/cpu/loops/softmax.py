"""Batch-invariant softmax weights of one row: their bits depend only on the tokens that the row sees.

Scores are ordered by position, in chunks of `CHUNK` positions counted from position 0. Every chunk is computed in full, with
the same instructions. Chunks are summed lane by lane, in order; positions that a row does not see add exact zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.compiled.math import EXP_TERMS, LN2_HIGH, LN2_LOW, LOG2E, LOWEST
from specdec_kernels.cpu.loops.lanes import (
    FLOAT,
    FLOATS,
    INDEX,
    LANES,
    WORD,
    declared,
    lanes,
    multiply_add,
    pointer,
    splat,
)
from specdec_kernels.cpu.loops.loops import loop

Floats = npt.NDArray[np.float32]
CHUNK = 16
"""Positions per chunk."""
_HIDDEN = np.float32(-1e30)


@njit(nogil=True, error_model="numpy")
def weigh(score: Floats, num_seen: int, window: int, num_first: int) -> np.float32:
    """Turn the scores of a row into unnormalized weights, in place, and return their sum.

    Args:
        score: `[W]`, W a multiple of `CHUNK`, contiguous; entry j belongs to position `first + j`, `first` a multiple too.
        num_seen: number of entries up to and including the row's own position; later entries are ignored and become 0.
        window: number of positions that the row sees, itself included.
        num_first: number of entries at the beginning that it sees beside these.
    """
    width = score.shape[0]
    for j in range(num_first, num_seen - window):
        score[j] = _HIDDEN
    for j in range(num_seen, width):
        score[j] = _HIDDEN
    total: np.float32 = _chunks(score.ctypes.data, width)
    return total


@njit(nogil=True, error_model="numpy")
def close_up(score: Floats, visible: npt.NDArray[np.bool_], count: int) -> int:
    """Move the scores that a row of a tree sees to the front, in order; returns how many there are.

    They are then at the places that the scores of a chain of these tokens would have.
    """
    num_seen = 0
    for j in range(count):
        if visible[j]:
            score[num_seen] = score[j]
            num_seen += 1
    return num_seen


@njit(nogil=True, error_model="numpy")
def spread(score: Floats, visible: npt.NDArray[np.bool_], count: int, num_seen: int) -> None:
    """Undo `close_up` for the weights; entries that the row does not see become 0."""
    for j in range(count - 1, -1, -1):
        if visible[j]:
            num_seen -= 1
            score[j] = score[num_seen]
        else:
            score[j] = np.float32(0.0)


def _chunked(typing_context: Any, address: Any, count: Any) -> Any:
    """Replace each of `count` scores s at an address by `e^(s - highest)`, 0 below e^-87, and return their sum.

    The order of the sum matters: do not call this in a function compiled with `fastmath`, which may change it.
    """

    def codegen(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _emit(builder, *arguments)

    return types.float32(types.int64, types.int64), codegen


_chunks: Any = intrinsic(_chunked)


@njit(nogil=True, error_model="numpy")
def cap_scores(score: Floats, softcap: np.float32) -> None:
    """Replace each score s of a row by `c * tanh(s / c)`, c the soft cap; `score` as for `weigh`."""
    _capped(score.ctypes.data, score.shape[0], softcap, np.float32(-2.0) / softcap)


def _cap(typing_context: Any, address: Any, count: Any, softcap: Any, double: Any) -> Any:
    """Cap `count` scores at an address; `double` is -2 over the cap. Whole registers only, as everywhere here."""

    def codegen(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _emit_cap(builder, *arguments)
        return target.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32, types.float32), codegen


_capped: Any = intrinsic(_cap)


def _emit_cap(builder: Any, address: Any, count: Any, softcap: Any, double: Any) -> None:
    """Emit a loop of `c * sign(s) * (1 - e) / (1 + e)`, e = e^(-2 |s| / c)."""
    zero, one = ir.Constant(INDEX, 0), _constant(1.0)
    cap, factor = splat(builder, softcap), splat(builder, double)
    absolute = declared(builder, f"llvm.fabs.v{LANES}f32", FLOATS, [FLOATS])
    signed = declared(builder, f"llvm.copysign.v{LANES}f32", FLOATS, [FLOATS, FLOATS])

    def capped(j: Any, carried: list[Any]) -> list[Any]:
        place = pointer(builder, address, 0, zero, j, FLOAT, LANES)
        score = builder.load(place, align=4)
        far = _exponential(builder, builder.fmul(builder.call(absolute, [score]), factor))
        tanh = builder.fdiv(builder.fsub(one, far), builder.fadd(one, far))
        builder.store(builder.call(signed, [builder.fmul(cap, tanh), score]), place, align=4)
        return carried

    loop(builder, zero, count, LANES, [], capped)


def _emit(builder: Any, address: Any, count: Any) -> Any:
    """Emit a loop over chunks for the highest score, a second one for the weights, and a pairwise sum of the lanes."""
    zero, num_registers = ir.Constant(INDEX, 0), CHUNK // LANES

    def place(j: Any, number: int) -> Any:
        k = builder.add(j, ir.Constant(INDEX, number * LANES))
        return pointer(builder, address, 0, zero, k, FLOAT, LANES)

    def higher(j: Any, carried: list[Any]) -> list[Any]:
        scores = [builder.load(place(j, number), align=4) for number in range(len(carried))]
        return [_larger(builder, s, c) for s, c in zip(scores, carried, strict=True)]

    tops = loop(builder, zero, count, CHUNK, [float(_HIDDEN)] * num_registers, higher)
    top = _folded(builder, tops, _larger)
    level = splat(builder, builder.extract_element(top, ir.Constant(WORD, 0)))

    def added(j: Any, carried: list[Any]) -> list[Any]:
        totals = []
        for number, total in enumerate(carried):
            scores = builder.load(place(j, number), align=4)
            weights = _exponential(builder, builder.fsub(scores, level))
            builder.store(weights, place(j, number), align=4)
            totals.append(builder.fadd(total, weights))
        return totals

    totals = loop(builder, zero, count, CHUNK, [0.0] * num_registers, added)
    total = _folded(builder, totals, lambda b, left, right: b.fadd(left, right))
    return builder.extract_element(total, ir.Constant(WORD, 0))


def _folded(builder: Any, registers: list[Any], combine: Callable[[Any, Any, Any], Any]) -> Any:
    """Combine registers, then the lanes of the result by halves, into one lane."""
    total = registers[0]
    for other in registers[1:]:
        total = combine(builder, total, other)
    width = LANES
    while width > 1:
        width //= 2
        low, high = (builder.shuffle_vector(total, total, lanes(range(s, s + width))) for s in (0, width))
        total = combine(builder, low, high)
    return total


def _larger(builder: Any, left: Any, right: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", left, right), left, right)


def _exponential(builder: Any, x: Any) -> Any:
    """Return e^x for a register of numbers up to 0, as `specdec_kernels.cpu.compiled.math.exp` does."""
    is_weight = builder.fcmp_ordered(">", x, _constant(LOWEST))
    x = builder.select(is_weight, x, _constant(LOWEST))
    floor = declared(builder, f"llvm.floor.v{LANES}f32", FLOATS, [FLOATS])
    n = builder.call(floor, [multiply_add(builder, x, _constant(LOG2E), _constant(0.5))])
    r = multiply_add(builder, n, _constant(-LN2_HIGH), x)
    r = multiply_add(builder, n, _constant(-LN2_LOW), r)
    p = _constant(EXP_TERMS[0])
    for term in EXP_TERMS[1:]:
        p = multiply_add(builder, p, r, _constant(term))
    p = builder.fadd(multiply_add(builder, builder.fmul(p, r), r, r), _constant(1.0))
    words = ir.VectorType(WORD, LANES)
    exponent = builder.add(builder.fptosi(n, words), ir.Constant(words, [127] * LANES))
    power = builder.bitcast(builder.shl(exponent, ir.Constant(words, [23] * LANES)), FLOATS)
    return builder.select(is_weight, builder.fmul(p, power), _constant(0.0))


def _constant(number: float | np.float32) -> Any:
    return ir.Constant(FLOATS, [float(number)] * LANES)
