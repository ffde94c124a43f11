"""Rows as whole numbers: each block of 32 has a scale, and each of its numbers digits of 8 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.compiled.jobs import job_of
from specdec_kernels.cpu.compiled.team import part_of, share
from specdec_kernels.cpu.loops.lanes import FLOAT, INDEX, WORD, declared, lanes
from specdec_runtime.interfaces.blocks import CHUNK

Floats = npt.NDArray[np.float32]
FACTORS = 4
"""Numbers of a row's block beside its digits: the scale, the sum of what the digits stand for, and that of either half."""
_MANY = 1 << 13
"""From so many numbers on, a team shares the work."""
_LEAST, _MOST = 0x0DA24260, 0x7F61B1E6
"""The bits of 1e-30 and 3e38: blocks of smaller numbers count as 0, those with larger ones are not finite."""
_FLOATS, _WORDS, _BYTES = (ir.VectorType(kind, CHUNK) for kind in (FLOAT, WORD, ir.IntType(8)))


@njit(nogil=True, error_model="numpy")
def split_rows(team: int, x: Floats, num_digits: int, digits: npt.NDArray[np.int8], factors: Floats) -> None:
    """Round rows to whole numbers times a scale for each block.

    With one digit a block's largest number is 127. With more the scale is a power of two, so that what the block's largest
    number leaves is at most 2^-14 of it with two digits, and 2^-22 with three: less than float32 rounds in a sum of them.

    Args:
        team: see `product_in_team`.
        x: `[T, K]`, K a multiple of `CHUNK`.
        num_digits: 1 to 3.
        digits: `[K / CHUNK, T, num_digits, CHUNK]`, the highest first; written.
        factors: `[K / CHUNK, T, FACTORS]`, written. The scale is NaN where a block has numbers that are not finite.
    """
    places = x.ctypes.data, digits.ctypes.data, factors.ctypes.data
    if x.size < _MANY:
        _split_part(*places, x.shape[0], x.shape[1], num_digits, 0, 1)
    else:
        share(team, job_of(_split_part, (*places, x.shape[0], x.shape[1], num_digits)))


@njit(nogil=True, error_model="numpy")
def _split_part(
    rows: int, out: int, more: int, num_rows: int, depth: int, num_digits: int, part: int, num_parts: int
) -> None:
    for chunk in part_of(depth // CHUNK, part, num_parts):
        for t in range(num_rows):
            place = chunk * num_rows + t
            _split(
                rows + 4 * (t * depth + chunk * CHUNK),
                num_digits,
                out + place * (num_digits | 1) * CHUNK,
                more + place * 4 * FACTORS,
            )


def _typed(context: Any, row: Any, num_digits: Any, digits: Any, factors: Any) -> Any:
    """Split a block; takes addresses."""

    def codegen(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row, num_digits, digits, factors = arguments
        x = builder.load(builder.inttoptr(row, _FLOATS.as_pointer()), align=4)
        most = _reduced(builder, "smax", builder.and_(builder.bitcast(x, _WORDS), _words(0x7FFFFFFF)))
        is_finite = builder.icmp_signed("<=", most, _word(_MOST))
        has_any = builder.and_(is_finite, builder.icmp_signed(">", most, _word(_LEAST)))
        scale = builder.fdiv(builder.bitcast(most, FLOAT), _float(127.0))
        above = builder.add(builder.bitcast(scale, WORD), _word(0x7FFFFF))
        power = builder.bitcast(builder.and_(above, _word(0x7F800000)), FLOAT)
        lower = builder.trunc(builder.sub(num_digits, ir.Constant(INDEX, 1)), WORD)
        scale = builder.select(builder.icmp_signed(">", lower, _word(0)), power, scale)
        unit = builder.sitofp(builder.shl(_word(1), builder.shl(lower, _word(3))), FLOAT)
        inverse = builder.select(has_any, builder.fdiv(unit, scale), _float(0.0))
        none = builder.select(is_finite, _float(0.0), _float(float("nan")))
        own = builder.select(has_any, builder.fdiv(scale, unit), none)
        first = builder.insert_element(ir.Constant(_FLOATS, ir.Undefined), inverse, _word(0))
        scaled = builder.fmul(x, builder.shuffle_vector(first, first, lanes([0] * CHUNK)))
        nearest = builder.call(declared(builder, f"llvm.rint.v{CHUNK}f32", _FLOATS, [_FLOATS]), [scaled])
        whole = builder.select(is_finite, builder.fptosi(nearest, _WORDS), _words(0))
        halves = [lanes(range(start, start + CHUNK // 2)) for start in (0, CHUNK // 2)]
        low, high = (_reduced(builder, "add", builder.shuffle_vector(whole, whole, half)) for half in halves)
        sums = [builder.sitofp(total, FLOAT) for total in (builder.add(low, high), low, high)]
        for number, factor in enumerate([own, *(builder.fmul(total, own) for total in sums)]):
            _store(builder, factor, factors, ir.Constant(INDEX, 4 * number))
        _store_digits(builder, whole, lower, digits)
        return target.get_dummy_value()

    return types.none(*[types.int64] * 4), codegen


_split: Any = intrinsic(_typed)


def _store_digits(builder: Any, whole: Any, place: Any, digits: Any, most: int = 3) -> None:
    """Emit stores of the lowest digit of whole numbers at a place, and of `most` at most before it."""
    last = builder.trunc(whole, _BYTES)
    _store(builder, last, digits, builder.mul(builder.zext(place, INDEX), ir.Constant(INDEX, CHUNK)))
    if most > 1:
        with builder.if_then(builder.icmp_signed(">", place, _word(0))):
            rest = builder.ashr(builder.sub(whole, builder.sext(last, _WORDS)), _words(8))
            _store_digits(builder, rest, builder.sub(place, _word(1)), digits, most - 1)


def _store(builder: Any, value: Any, address: Any, offset: Any) -> None:
    builder.store(value, builder.inttoptr(builder.add(address, offset), value.type.as_pointer()), align=1)


def _reduced(builder: Any, how: str, whole: Any) -> Any:
    """Return the largest of whole numbers, or their sum."""
    name = f"llvm.vector.reduce.{how}.v{whole.type.count}i32"
    return builder.call(declared(builder, name, WORD, [whole.type]), [whole])


def _word(number: int) -> Any:
    return ir.Constant(WORD, number)


def _words(number: int) -> Any:
    return ir.Constant(_WORDS, [number] * CHUNK)


def _float(number: float) -> Any:
    return ir.Constant(FLOAT, number)
