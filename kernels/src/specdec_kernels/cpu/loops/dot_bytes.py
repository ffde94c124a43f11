"""Sums of products of bytes, four for each integer of a register, by the instructions that a processor has for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import binding, ir

from specdec_kernels.cpu.compiled.target import FEATURES
from specdec_kernels.cpu.loops.lanes import LANES, WORD, declared

_BYTE, _SHORT = ir.IntType(8), ir.IntType(16)
BYTES, WORDS = ir.VectorType(_BYTE, 4 * LANES), ir.VectorType(WORD, LANES)
_SHORTS = ir.VectorType(_SHORT, 2 * LANES)
_VNNI = {16: "avx512vnni", 8: "avxvnni"}.get(LANES, "")
HAS_BYTE_SUMS = bool(FEATURES.get(_VNNI)) and binding.llvm_version_info[0] >= 22
"""Whether one instruction adds four products of bytes to an integer (AVX512_VNNI, AVX_VNNI)."""
_HAS_PAIRS = bool(FEATURES.get({16: "avx512bw", 8: "avx2"}.get(LANES, "")))
"""Whether one adds two of them in 16 bits (VPMADDUBSW)."""
_NAME = {16: "avx512.{}.512", 8: "avx2.{}"}.get(LANES, "")
_SHORTEST = (1 << 15) - 1
_LARGEST = 128
"""Of signed bytes."""


def add_products(builder: Any, total: Any, pairs: Sequence[tuple[Any, Callable[[], Any]]], most: int) -> Any:
    """Return integers plus sums of products of bytes.

    Args:
        builder: the LLVM IR builder.
        total: a register of integers.
        pairs: registers of unsigned bytes, and what emits the signed bytes to multiply them with.
        most: the largest unsigned byte.
    """
    if HAS_BYTE_SUMS:
        for unsigned, signed in pairs:
            name = f"llvm.x86.avx512.vpdpbusd.{32 * LANES}"
            function = declared(builder, name, WORDS, [WORDS, BYTES, BYTES])
            total = builder.call(function, [total, unsigned, signed()])
        return total
    if not _HAS_PAIRS:
        for unsigned, signed in pairs:
            total = _add_one_by_one(builder, total, unsigned, signed())
        return total
    together = _SHORTEST // (2 * most * _LARGEST)
    if not together:  # two products do not fit in 16 bits, those of half a byte do
        half = ir.Constant(WORDS, [0x0F0F0F0F] * LANES)

        def halves(unsigned: Any, shift: int) -> Any:
            whole = builder.lshr(builder.bitcast(unsigned, WORDS), words(shift))
            return builder.bitcast(builder.and_(whole, half), BYTES)

        upper = add_products(builder, words(0), [(halves(each, 4), signed) for each, signed in pairs], 15)
        total = builder.add(total, builder.shl(upper, words(4)))
        return add_products(builder, total, [(halves(each, 0), signed) for each, signed in pairs], 15)
    multiply = declared(builder, _x86("pmadd.ub.sw", "pmaddubs.w"), _SHORTS, [BYTES, BYTES])
    widen = declared(builder, _x86("pmadd.wd", "pmaddw.d"), WORDS, [_SHORTS, _SHORTS])
    for start in range(0, len(pairs), together):
        products = [builder.call(multiply, [u, signed()]) for u, signed in pairs[start : start + together]]
        short = products[0]
        for product in products[1:]:
            short = builder.add(short, product)
        wide = builder.call(widen, [short, ir.Constant(_SHORTS, [1] * 2 * LANES)])
        total = builder.add(total, wide)
    return total


def words(word: int) -> Any:
    """Return a register with an integer in every lane."""
    return ir.Constant(WORDS, [word] * LANES)


def _x86(short: str, wide: str) -> str:
    return "llvm.x86." + _NAME.format(wide if LANES == 16 else short)


def _add_one_by_one(builder: Any, total: Any, unsigned: Any, signed: Any) -> Any:
    """Do without instructions for bytes."""
    codes, numbers = (builder.bitcast(each, WORDS) for each in (unsigned, signed))
    for byte in range(4):
        code = builder.and_(builder.lshr(codes, words(8 * byte)), words(255))
        number = builder.ashr(builder.shl(numbers, words(24 - 8 * byte)), words(24))
        total = builder.add(total, builder.mul(code, number))
    return total
