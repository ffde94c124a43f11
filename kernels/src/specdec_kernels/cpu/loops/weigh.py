"""Products with the weights at an address, whatever they are stored in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.extending import overload

from specdec_kernels.cpu.loops.frame import Part
from specdec_kernels.cpu.loops.pointer import array_at
from specdec_kernels.cpu.loops.product import multiply
from specdec_kernels.cpu.loops.quantized import product_quantized


def weigh(x: Any, address: int, like: Any, frame: Any, out: Any) -> None:
    """Write `x [T, K]` times the weights `[N, K]` at an address, stored like `like`, to `out [T, N]`."""
    raise NotImplementedError("compiled code only")


@overload(weigh, strict=False)
def _overload_weigh(x: Any, address: Any, like: Any, frame: Any, out: Any) -> Callable[..., None]:
    return {types.int8: _bytes, types.uint8: _halves}.get(like.dtype, _numbers)


def _bytes(x: Any, address: int, like: Any, frame: Any, out: Any) -> None:
    product_quantized(x, array_at(address, (out.shape[1], x.shape[1]), like), x.shape[1], out)


def _halves(x: Any, address: int, like: Any, frame: Any, out: Any) -> None:
    product_quantized(x, array_at(address, (out.shape[1], x.shape[1] // 2), like), frame[Part.GROUP], out)


def _numbers(x: Any, address: int, like: Any, frame: Any, out: Any) -> None:
    multiply(x, array_at(address, (out.shape[1], x.shape[1]), like), out, frame[Part.IS_ROUNDED] != 0)
