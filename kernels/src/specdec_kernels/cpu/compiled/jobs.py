"""Calls that are kept in memory: a compiled function and its arguments, which any thread can run a part of."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_alloca: Any = cgutils.alloca_once  # numba is not annotated
_TUPLE: Any = types.BaseTuple
_WORD, _PLACE = ir.IntType(64), ir.IntType(8).as_pointer()
_RUN = ir.FunctionType(ir.IntType(32), [_PLACE, _WORD, _WORD])
"""Runs a part of the job at an address: which part, of how many; returns 0, or what it failed with."""


def _made(num_more: int) -> Any:
    """Return an intrinsic that makes a job of a function and its arguments but the last `num_more` integers."""

    def typed(context: Any, function: Any, arguments: Any) -> Any:
        if not isinstance(function, types.Dispatcher) or not isinstance(arguments, _TUPLE):
            return None
        given = (*arguments.types, *[types.int64] * num_more)
        signature: Any = function.get_call_type(context, given, {})

        def codegen(target: Any, builder: Any, _: Any, values: Any) -> Any:
            made = function.dispatcher.overloads[signature.args]
            target.active_code_library.add_linking_library(made.library)
            packed = values[1]
            job = _alloca(builder, ir.LiteralStructType([_RUN.as_pointer(), packed.type]))
            run = _runner(target, builder.module, made, arguments, signature, packed.type)
            builder.store(run, _field(builder, job, 0))
            builder.store(packed, _field(builder, job, 1))
            return builder.ptrtoint(job, _WORD)

        return types.int64(function, arguments), codegen

    return intrinsic(typed)


def _runner(target: Any, module: Any, made: Any, arguments: Any, signature: Any, packed: Any) -> Any:
    """Return the function of a module that runs a job."""
    name = f"specdec.run.{made.fndesc.mangled_name}.{arguments}"
    known = module.globals.get(name)
    if known is not None:
        return known
    runner = ir.Function(module, _RUN, name)
    runner.linkage = "internal"
    builder = ir.IRBuilder(runner.append_basic_block("entry"))
    job, *which = runner.args
    place = builder.bitcast(job, ir.LiteralStructType([_RUN.as_pointer(), packed]).as_pointer())
    own = builder.load(_field(builder, place, 1))
    values = [
        target.cast(builder, builder.extract_value(own, i), kind, wanted)
        for i, (kind, wanted) in enumerate(zip(arguments.types, signature.args, strict=False))
    ]
    called = target.declare_function(module, made.fndesc)
    status, _ = target.call_conv.call_function(
        builder,
        called,
        signature.return_type,
        signature.args,
        [*values, *which[: len(signature.args) - len(values)]],
    )
    builder.ret(builder.select(status.is_error, status.code, ir.Constant(ir.IntType(32), 0)))
    return runner


def _field(builder: Any, job: Any, index: int) -> Any:
    zero = ir.Constant(ir.IntType(32), 0)
    return builder.gep(job, [zero, ir.Constant(ir.IntType(32), index)])


def _typed_run(context: Any, job: Any, part: Any, num_parts: Any) -> Any:
    """Run a part of the job at an address; returns 0, or what it failed with."""

    def codegen(target: Any, builder: Any, signature: Any, values: Any) -> Any:
        address, part, num_parts = values
        place = builder.inttoptr(address, _RUN.as_pointer().as_pointer())
        code = builder.call(builder.load(place), [builder.bitcast(place, _PLACE), part, num_parts])
        return builder.zext(code, _WORD)

    return types.int64(types.int64, types.int64, types.int64), codegen


call_of: Any = _made(0)
"""Return the address of a job that calls a function with a tuple of arguments, whichever its part; see `job_of`."""
job_of: Any = _made(2)
"""The same of a function that is given, after these arguments, the part to run and how many there are.

A job lasts until its maker returns. What the arguments refer to is neither copied nor kept alive.
"""
run_part: Any = intrinsic(_typed_run)
