"""Emits loops and branches for code that works on vector registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import njit

from specdec_kernels.cpu.loops.lanes import FLOATS, INDEX, LANES


def loop(
    builder: Any,
    start: Any,
    end: Any,
    step: int,
    starts: Sequence[Any],
    emit: Callable[[Any, list[Any]], list[Any]],
) -> list[Any]:
    """Emit a loop from `start` to `end` that carries registers of float32.

    Args:
        builder: the LLVM IR builder.
        start: first value of the counter.
        end: exclusive end of the counter.
        step: increment of the counter.
        starts: initial value of each register: a register, or a number for all of its lanes.
        emit: emits the body for the counter and the registers; returns the registers of the next iteration.

    Returns:
        the registers after the loop.
    """
    before, head = builder.basic_block, builder.append_basic_block("head")
    body, after = builder.append_basic_block("body"), builder.append_basic_block("after")
    builder.branch(head)
    builder.position_at_end(head)
    counter = builder.phi(INDEX)
    counter.add_incoming(start, before)
    carried = [builder.phi(FLOATS) for _ in starts]
    builder.cbranch(builder.icmp_signed("<", counter, end), body, after)
    builder.position_at_end(body)
    following = emit(counter, carried)
    last = builder.basic_block
    for register, first, result in zip(carried, starts, following, strict=True):
        register.add_incoming(
            ir.Constant(FLOATS, [first] * LANES) if isinstance(first, float) else first, before
        )
        register.add_incoming(result, last)
    counter.add_incoming(builder.add(counter, ir.Constant(INDEX, step)), last)
    builder.branch(head)
    builder.position_at_end(after)
    return carried


def by_count(builder: Any, count: Any, most: int, emit: Callable[[int], None]) -> None:
    """Emit a switch with code for each number from 1 to `most`; at run time the code for `count` is executed."""
    after = builder.append_basic_block("counted")
    branch = builder.switch(count, after)
    for number in range(1, most + 1):
        case = builder.append_basic_block("count")
        branch.add_case(ir.Constant(INDEX, number), case)
        builder.position_at_end(case)
        emit(number)
        builder.branch(after)
    builder.position_at_end(after)


@njit(inline="always")
def next_count(left: int, most: int) -> int:
    """Return how many of the remaining rows to process next, at most `most`, such that all turns are of about equal size."""
    turns = (left + most - 1) // most
    return (left + turns - 1) // turns
