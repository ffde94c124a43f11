"""`rms_norm`: root-mean-square norm of rows, with optional residual add."""

from __future__ import annotations

from typing import NamedTuple

import torch

from specdec_kernels.triton.arguments import check_input, check_rows, check_vector
from specdec_kernels.triton.dispatch import Backend, backend_for
from specdec_kernels.triton.rms_norm.reference import rms_norm_reference

__all__ = ["NormOutput", "rms_norm"]


class NormOutput(NamedTuple):
    """Outputs of `rms_norm`."""

    normed: torch.Tensor
    """`[T, H]`."""
    residual: torch.Tensor | None
    """`[T, H]`: the sum `x + residual`; None without a residual."""


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    epsilon: float,
    residual: torch.Tensor | None = None,
    out: NormOutput | None = None,
    num_warps: int | None = None,
) -> NormOutput:
    """Return `s / sqrt(mean(s ** 2) + epsilon) * weight` for `s = x + residual`.

    Root mean square norm (https://arxiv.org/abs/1910.07467). The sum is rounded to the type of x, like the residual
    stream; everything else is float32 and rounded once. Each row is one program with a summation order fixed by H, so a
    row's bits do not depend on the other rows. Heads can be passed as rows: `x.view(T * num_heads, D)`.

    Args:
        x: `[T, H]` float32, float16 or bfloat16, unit stride along H.
        weight: `[H]` floating point, of any type.
        epsilon: added to the mean square.
        residual: `[T, H]` of the type of x; None adds nothing.
        out: tensors to write to; `normed` may be x, `residual` may be the residual. None allocates them.
        num_warps: of a program, which has a row; None uses the heuristic. A row's bits depend on it.

    Raises:
        ValueError: naming the argument whose value, shape, type, device or layout is wrong.
    """
    check_input("x", x, ("T", "H"))
    check_vector("weight", weight, x.shape[1], like=x)
    if residual is not None:
        check_rows("residual", residual, x.shape, like=x)
    if not epsilon >= 0:
        raise ValueError(f"epsilon={epsilon} must be at least 0")
    if out is None:
        out = NormOutput(torch.empty_like(x), None if residual is None else torch.empty_like(x))
    if (out.residual is None) != (residual is None):
        raise ValueError("out.residual must be given with a residual, and only then")
    check_rows("out.normed", out.normed, x.shape, like=x)
    if out.residual is not None:
        check_rows("out.residual", out.residual, x.shape, like=x)
    if x.shape[0] == 0:
        return out
    if backend_for(x) is Backend.REFERENCE:
        normed, total = rms_norm_reference(x, weight, epsilon, residual)
        out.normed.copy_(normed)
        if out.residual is not None:
            out.residual.copy_(total)
        return out
    from specdec_kernels.triton.rms_norm.kernel import rms_norm_triton  # imports Triton

    rms_norm_triton(x, weight, epsilon, residual, *out, num_warps)
    return out
