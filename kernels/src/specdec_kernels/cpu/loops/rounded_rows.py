"""Rows rounded to 8 bits, for products that sum bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.loops.lanes import FLOAT, FLOATS, INDEX, LANES, declared, lanes, load_floats, splat
from specdec_runtime.interfaces import QuantizedLinear

Floats = npt.NDArray[np.float32]
BLOCK = QuantizedLinear.BLOCK
REGISTER = 4 * LANES
"""Bytes of a register."""
UNIT = 2 * REGISTER
"""Numbers that are multiplied at a time."""
_HALF, _BLOCK_LANES = BLOCK // 2, BLOCK * LANES // UNIT
_MOST = ir.Constant(FLOAT, 127.0)


@njit(nogil=True, error_model="numpy")
def round_rows(x: Floats, numbers: npt.NDArray[np.int8], scales: Floats, sums: Floats) -> None:
    """Round rows to multiples of a scale for each block of 32 numbers; needs `LANES` of 16.

    Args:
        x: `[T, K]`, K a multiple of `BLOCK`.
        numbers: `[T, U, UNIT]` multiples from -127 to 127 of U units of four blocks each: the first halves of the blocks, then
            their second halves, as weights of 4 bits lie in bytes; written, 0 beyond K.
        scales: `[T, U, LANES]` each block's scale, four times; written, 0 beyond K.
        sums: `[T, U, LANES]` four numbers for each block, whose sum is that of what `x` has there; ditto.
    """
    num_units = numbers.shape[1]
    numbers[:, num_units - 1] = 0
    scales[:, num_units - 1] = np.float32(0.0)
    sums[:, num_units - 1] = np.float32(0.0)
    rows, out, steps, totals = x.ctypes.data, numbers.ctypes.data, scales.ctypes.data, sums.ctypes.data
    for t in range(x.shape[0]):
        for block in range(x.shape[1] // BLOCK):
            unit, part = t * num_units + block * BLOCK // UNIT, block % (UNIT // BLOCK)
            lane = 4 * (unit * LANES + part * _BLOCK_LANES)
            _round_block(
                rows + 4 * (t * x.shape[1] + block * BLOCK),
                out + unit * UNIT + part * _HALF,
                steps + lane,
                totals + lane,
            )


def _typed(context: Any, row: Any, numbers: Any, scale: Any, sums: Any) -> Any:
    """Round a block; all are addresses."""

    def codegen(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row, numbers, scale, sums = arguments
        zero, step = ir.Constant(INDEX, 0), ir.Constant(INDEX, 4 * _HALF)
        halves = [load_floats(builder, row, half, step, zero, is_half=False) for half in range(2)]
        sizes = [
            builder.call(declared(builder, f"llvm.fabs.v{LANES}f32", FLOATS, [FLOATS]), [half])
            for half in halves
        ]
        larger = builder.call(declared(builder, f"llvm.maxnum.v{LANES}f32", FLOATS, [FLOATS] * 2), sizes)
        most = builder.call(
            declared(builder, f"llvm.vector.reduce.fmax.v{LANES}f32", FLOAT, [FLOATS]), [larger]
        )
        # Of what is not finite the sums tell, and what is tiny counts as 0: neither has a factor.
        has_any = builder.and_(
            builder.fcmp_ordered(">", most, ir.Constant(FLOAT, 1e-30)),
            builder.fcmp_ordered("<", most, ir.Constant(FLOAT, 3e38)),
        )
        none = ir.Constant(FLOAT, 0.0)
        factor = splat(builder, builder.select(has_any, builder.fdiv(_MOST, most), none))
        own_scale = builder.select(has_any, builder.fdiv(most, _MOST), none)
        for half, values in enumerate(halves):
            nearest = builder.call(
                declared(builder, f"llvm.rint.v{LANES}f32", FLOATS, [FLOATS]), [builder.fmul(values, factor)]
            )
            words = ir.VectorType(ir.IntType(32), LANES)
            rounded = declared(builder, f"llvm.fptosi.sat.v{LANES}i32.v{LANES}f32", words, [FLOATS])
            whole = builder.call(rounded, [nearest])  # NaN becomes 0
            _store(
                builder, builder.trunc(whole, ir.VectorType(ir.IntType(8), LANES)), numbers, half * REGISTER
            )
        _store(builder, _first(builder, splat(builder, own_scale), 0), scale, 0)
        both = builder.fadd(*halves)
        total = _first(builder, both, 0)
        for start in range(_BLOCK_LANES, LANES, _BLOCK_LANES):
            total = builder.fadd(total, _first(builder, both, start))
        _store(builder, total, sums, 0)
        return target.get_dummy_value()

    return types.none(*[types.int64] * 4), codegen


_round_block: Any = intrinsic(_typed)


def _first(builder: Any, register: Any, start: int) -> Any:
    """Return a block's number of lanes, from one on."""
    return builder.shuffle_vector(register, register, lanes(range(start, start + _BLOCK_LANES)))


def _store(builder: Any, register: Any, address: Any, offset: int) -> None:
    place = builder.add(address, ir.Constant(address.type, offset))
    builder.store(register, builder.inttoptr(place, register.type.as_pointer()), align=1)
