"""What the tests of kernels share: poison, keys and the bound on errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
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


def from_python(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what calls a compiled function that has no way for Python to call it."""
    return numba.njit(lambda *arguments: function(*arguments))  # type: ignore[no-any-return]  # numba is not annotated
