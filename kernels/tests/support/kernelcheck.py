"""What the tests of kernels share: poison, keys, the bound on errors, and an interpreter that computes as a GPU does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
import torch

from specdec_kernels.triton import NoiseKeys

NAN = float("nan")
POISON = torch.iinfo(torch.int64).min
"""What outputs of ids hold before; no operation writes it."""


def check_close(ours: torch.Tensor, theirs: torch.Tensor | list[torch.Tensor], exact: torch.Tensor) -> None:
    """At most twice the error of the same operations in the same type, which may round once more by luck alone.

    Args:
        ours: the operation's result, on any device.
        theirs: with every operation in the type of the result; several for several orders of summation, of which the worst
            counts.
        exact: in float64.
    """
    all_theirs = theirs if isinstance(theirs, list) else [theirs]
    floor = torch.finfo(all_theirs[0].dtype).eps * exact.abs().max()
    error = (ours.cpu().double() - exact).abs().max()
    assert error <= 2 * max((each.double() - exact).abs().max() for each in all_theirs) + floor


def in_order(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return `a @ b`, summed in ascending order, as kernels do, where torch sums in blocks, whose error is often smaller.

    Args:
        a: `[N, K]`; sums of 16-bit types are torch's, which are float32 inside.
        b: `[K, M]`.
    """
    if a.dtype != torch.float32:
        return a @ b
    total = a.new_zeros(a.shape[0], b.shape[1])
    for index in range(a.shape[1]):
        total += a[:, index, None] * b[None, index]
    return total


def keys_for(size: int, seed: int = 0) -> NoiseKeys:
    """Keys of requests that have little in common."""
    requests = torch.arange(size)
    return NoiseKeys(requests * 104729 + seed, requests + 9, requests % 3)


def interpret_as_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the interpreter multiply and round as a GPU does.

    Its own product reads bfloat16 as integers, and its BLAS sums edge rows of a tile in another order; its own cast to
    bfloat16 cuts off, which a sum that is compared exactly shows.
    """
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    def widened(data: Any) -> Any:
        is_bfloat16 = data.dtype == np.uint16
        return (data.astype(np.uint32) << 16).view(np.float32) if is_bfloat16 else data.astype(np.float32)

    def create_dot(self, a, b, d, input_precision, max_num_imprecise_acc):
        product = np.einsum("mk,kn->mn", widened(a.data), widened(b.data))
        return TensorHandle(product + d.data, d.dtype.scalar)

    def create_fp_trunc(self, src, dst_type):
        if src.data.dtype != np.float32 or dst_type.scalar.name != "bf16":
            return self.cast_impl(src, dst_type)
        rounded = torch.from_numpy(src.data.copy()).bfloat16().view(torch.int16)
        return TensorHandle(rounded.numpy().view(np.uint16), dst_type.scalar)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", create_dot)
    monkeypatch.setattr(InterpreterBuilder, "create_fp_trunc", create_fp_trunc)


def from_python(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what calls a compiled function that has no way for Python to call it."""
    return numba.njit(lambda *arguments: function(*arguments))  # type: ignore[no-any-return]  # numba is not annotated
