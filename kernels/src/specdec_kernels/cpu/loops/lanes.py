"""The vector registers of this processor, and helpers that emit code for them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

from llvmlite import binding, ir

from specdec_kernels.cpu.compiled.target import FEATURES

LANES = 16 if FEATURES.get("avx512f") else 8 if FEATURES.get("avx") else 4
"""Number of float32 values in a vector register."""

FLOAT, HALF, WORD, INDEX = ir.FloatType(), ir.IntType(16), ir.IntType(32), ir.IntType(64)
FLOATS = ir.VectorType(FLOAT, LANES)


HAS_BFLOAT16_PAIRS = bool(FEATURES.get("avx512bf16")) and binding.llvm_version_info[0] >= 20
"""Whether this processor multiplies bfloat16 numbers in pairs and sums them in float32 (AVX512_BF16)."""


class Kind(Enum):
    """Types of the two factors of a product."""

    FLOATS = "float32 with float32"
    WIDENED = "float32 with bfloat16, made float32 first, which loses nothing"
    BFLOATS = "bfloat16 with bfloat16, summed in float32"

    @property
    def step(self) -> int:
        """Numbers of a row processed at a time."""
        return 2 * LANES if self is Kind.BFLOATS else LANES


class _BFloat(ir.types.Type):  # type: ignore[misc]  # llvmlite is untyped
    """LLVM's `bfloat`, which llvmlite does not define."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash("bfloat")


BFLOATS = ir.VectorType(_BFloat(), 2 * LANES)


def load_pairs(builder: Any, base: Any, row: int, step: Any, k: Any) -> Any:
    """Load a vector register of bfloat16 numbers, starting at number `k` of row `row`."""
    halves = builder.load(pointer(builder, base, row, step, k, HALF, 2 * LANES), align=2)
    return builder.bitcast(halves, BFLOATS)


def add_pairs(builder: Any, left: Any, right: Any, total: Any) -> Any:
    """Return `total` plus the bfloat16 products of `left` and `right`, two per lane; needs `HAS_BFLOAT16_PAIRS`."""
    name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * LANES}"
    return builder.call(declared(builder, name, FLOATS, [FLOATS, BFLOATS, BFLOATS]), [total, left, right])


def splat(builder: Any, number: Any) -> Any:
    """Return a register with a number in every lane."""
    one = builder.insert_element(
        ir.Constant(ir.VectorType(number.type, LANES), ir.Undefined), number, ir.Constant(WORD, 0)
    )
    return builder.shuffle_vector(one, one, lanes([0] * LANES))


def load_floats(builder: Any, base: Any, row: int, step: Any, k: Any, is_half: bool) -> Any:
    """Load a vector register of float32, starting at number `k` of row `row`; bfloat16 numbers are widened."""
    if not is_half:
        return builder.load(pointer(builder, base, row, step, k, FLOAT, LANES), align=4)
    halves = builder.load(pointer(builder, base, row, step, k, HALF, LANES), align=2)
    words = ir.VectorType(ir.IntType(32), LANES)
    upper = builder.shl(builder.zext(halves, words), ir.Constant(words, [16] * LANES))
    return builder.bitcast(upper, FLOATS)


def multiply_add(builder: Any, left: Any, right: Any, total: Any) -> Any:
    """Return `left * right + total` of float32 vectors."""
    return builder.call(
        declared(builder, f"llvm.fmuladd.v{LANES}f32", FLOATS, [FLOATS] * 3), [left, right, total]
    )


def pointer(builder: Any, base: Any, row: int, step: Any, k: Any, number: Any, lanes: int = 0) -> Any:
    """Return a pointer to number `k` of row `row`, or to the `lanes` numbers from there on."""
    size = ir.Constant(INDEX, 2 if number is HALF else 4)
    address = builder.add(base, builder.mul(ir.Constant(INDEX, row), step))
    pointed = ir.VectorType(number, lanes) if lanes else number
    return builder.inttoptr(builder.add(address, builder.mul(k, size)), pointed.as_pointer())


def declared(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    """Return an LLVM intrinsic of the module, declared once."""
    known = builder.module.globals.get(name)
    return known or ir.Function(builder.module, ir.FunctionType(result, arguments), name)


def lanes(numbers: Iterable[int]) -> Any:
    """Return the constant mask of a shuffle that selects these lanes."""
    chosen = list(numbers)
    return ir.Constant(ir.VectorType(ir.IntType(32), len(chosen)), chosen)
