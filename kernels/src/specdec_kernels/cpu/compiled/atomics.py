"""Reads and writes of memory that several threads use, for compiled code."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_WORD = ir.IntType(64)
_HINTS = {"x86_64": ("llvm.x86.sse2.pause",), "aarch64": ("llvm.aarch64.hint", 1)}
_HINT = _HINTS.get({"amd64": "x86_64", "arm64": "aarch64"}.get(name := platform.machine().lower(), name))
"""LLVM's name and argument of the instruction for loops that wait."""


def _emitted(num_arguments: int, result: Any, emit: Callable[..., Any]) -> Any:
    """Return an intrinsic of that many integers."""
    kinds = [types.int64] * num_arguments

    def codegen(target: Any, builder: Any, signature: Any, values: Any) -> Any:
        made = emit(builder, *values)
        return target.get_dummy_value() if result == types.none else made

    if num_arguments == 0:
        return intrinsic(lambda context: (result(), codegen))
    if num_arguments == 1:
        return intrinsic(lambda context, a: (result(*kinds), codegen))
    if num_arguments == 2:
        return intrinsic(lambda context, a, b: (result(*kinds), codegen))
    return intrinsic(lambda context, a, b, c: (result(*kinds), codegen))


def _place(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _WORD.as_pointer())


def _swap(builder: Any, address: Any, expected: Any, number: Any) -> Any:
    found = builder.cmpxchg(_place(builder, address), expected, number, "acq_rel", "acquire")
    return builder.extract_value(found, 1)


def _pause(builder: Any) -> None:
    if _HINT is not None:
        name, *numbers = _HINT
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(32)] * len(numbers))
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        builder.call(function, [ir.Constant(ir.IntType(32), number) for number in numbers])


def _let_others(builder: Any) -> None:
    if os.name == "posix":
        name, kind = "sched_yield", ir.FunctionType(ir.IntType(32), [])
        builder.call(builder.module.globals.get(name) or ir.Function(builder.module, kind, name), [])


read: Any = _emitted(1, types.int64, lambda b, address: b.load_atomic(_place(b, address), "acquire", 8))
"""Return the number at an address; what was written before it was is seen from then on."""
write: Any = _emitted(
    2, types.none, lambda b, address, number: b.store_atomic(number, _place(b, address), "release", 8)
)
"""Write a number to an address; who reads it sees all that was written before."""
swap: Any = _emitted(3, types.boolean, _swap)
"""Write a number to an address if there is an expected one; returns whether it was there."""
pause: Any = _emitted(0, types.none, _pause)
"""Tell the processor that a loop waits."""
let_others: Any = _emitted(0, types.none, _let_others)
"""Let another thread run on this processor, if one waits for it."""
