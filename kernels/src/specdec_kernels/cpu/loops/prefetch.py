"""Prefetches memory into the processor's caches."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

_LINE = 64
"""Bytes of a cache line; on processors with longer lines some prefetches are redundant."""
_READ, _DATA = 0, 1


def emit_prefetch(builder: Any, address: Any, level: int = 2) -> None:
    """Emit a prefetch of the cache line at a pointer of any type to a cache; an invalid pointer does no harm."""
    pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    function = builder.module.declare_intrinsic(
        "llvm.prefetch", [pointer], ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
    )
    settings = [ir.Constant(number, value) for value in (_READ, 4 - level, _DATA)]
    builder.call(function, [builder.bitcast(address, pointer), *settings])


def _prefetch_line(typing_context: Any, address: Any) -> Any:
    """Prefetch the cache line at an address into the second-level cache."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        emit_prefetch(builder, builder.inttoptr(arguments[0], ir.IntType(8).as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64), codegen


_prefetch: Any = intrinsic(_prefetch_line)


@njit(inline="always")
def prefetch(address: int, num_bytes: int) -> None:
    """Prefetch `num_bytes` from an address on into the second-level cache."""
    for offset in range(0, num_bytes, _LINE):
        _prefetch(address + offset)
