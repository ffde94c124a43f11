"""Calls of compiled functions by address: what they write and raise, and arguments of other types."""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np
import pytest
from kernelcheck import from_python
from numba import TypingError, njit, types
from numba.core.dispatcher import Dispatcher

from specdec_kernels import cpu
from specdec_kernels.cpu.compiled.calls import address_of, by_address
from specdec_kernels.cpu.compiled.jit import njit as kept_njit

SIGNATURE = types.float32[:, ::1], types.int64, types.boolean
call = by_address(SIGNATURE)


@njit
def _add(out, number, is_twice):
    out += number * (2 if is_twice else 1)


@njit
def _subtract(out, number, is_twice):
    out -= number * (2 if is_twice else 1)


@njit
def _raise(out, number, is_twice):
    raise ValueError("no such number")


@njit
def _return(out, number, is_twice):
    return number


@njit
def _caller(address, out, number):
    call(address, (out, number, number > 2))
    out[0, 0] = 7


def test_one_caller_runs_what_the_address_says() -> None:
    for function, expected in ((_add, 6.0), (_subtract, -6.0)):
        out = np.zeros((2, 2), np.float32)
        _caller(address_of(function, SIGNATURE), out, 3)
        assert out.tolist() == [[7.0, expected], [expected, expected]]
    assert len(_caller.signatures) == 1


def test_what_is_raised_is_passed_on() -> None:
    out = np.zeros((2, 2), np.float32)
    with pytest.raises(ValueError, match="no such number"):
        _caller(address_of(_raise, SIGNATURE), out, 3)
    assert not out.any()


def test_a_function_that_returns_something_is_refused() -> None:
    with pytest.raises(AssertionError):
        address_of(_return, SIGNATURE)


@pytest.mark.parametrize(
    "out", [np.zeros((2, 2)), np.zeros((2, 2), np.float32).T[:1], np.zeros(2, np.float32)]
)
def test_other_types_do_not_compile(out) -> None:
    with pytest.raises(TypingError):
        _caller(address_of(_add, SIGNATURE), out, 3)


def test_who_calls_first_does_not_decide_how_a_function_is_compiled() -> None:
    """numba has a function inherit `fastmath` of its first caller; one that looks for NaN would not find it then."""

    @kept_njit(nogil=True)
    def is_nan(number):
        return number != number

    @njit(fastmath=True)
    def first(numbers):
        return 1 if is_nan(numbers[0]) else 0

    first(np.zeros(1))
    assert from_python(is_nan)(np.nan)


def test_no_compiled_function_leaves_fastmath_open() -> None:
    """Those that are inlined into their callers as Python are compiled with these."""
    functions = [
        (module.__name__, name, value)
        for info in pkgutil.walk_packages(cpu.__path__, f"{cpu.__name__}.")
        for module in [importlib.import_module(info.name)]
        for name, value in vars(module).items()
        if isinstance(value, Dispatcher)
    ]
    assert len(functions) > 50
    assert [
        (module, name)
        for module, name, function in functions
        if "fastmath" not in function.targetoptions and function.targetoptions.get("inline") != "always"
    ] == []
