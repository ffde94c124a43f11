"""`matmul_invariant`: a linear layer whose rows do not depend on how many there are."""

from __future__ import annotations

import torch

from specdec_kernels.dispatch import Backend, backend_for
from specdec_kernels.kv_write.checks import check_rows, shown
from specdec_kernels.matmul_invariant.config import LaunchConfig, heuristic
from specdec_kernels.matmul_invariant.reference import matmul_invariant_reference

__all__ = ["matmul_invariant"]

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def matmul_invariant(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    config: LaunchConfig | None = None,
) -> torch.Tensor:
    """Return `x @ weight.T + bias`, summed in float32 and rounded once; a row has the same bits for any T.

    The kernel's tiles and the order in which they are summed follow from the shape and type of the weight, never from T:
    verifying a draft gives a token the logits that decoding it alone would
    (https://thinkingmachines.ai/blog/defeating-nondeterminism-in-llm-inference). This holds for one configuration on one
    device; the reference promises it no more than torch's products do.

    Args:
        x: `[T, K]` float32, float16 or bfloat16, unit stride along K.
        weight: `[N, K]` of the same type, unit stride along K.
        bias: `[N]` of the same type, contiguous; None adds nothing.
        out: `[T, N]` to write to, not x; None allocates it.
        config: launch parameters of the Triton kernel; None takes the heuristic.

    Raises:
        ValueError: naming the argument whose shape, type, device or layout is wrong.
    """
    if x.dim() != 2 or x.dtype not in _DTYPES:
        raise ValueError(f"x must be float32, float16 or bfloat16 [T, K], not {shown(x)}")
    check_rows("x", x, (x.shape[0], "K"), like=x)
    check_rows("weight", weight, ("N", x.shape[1]), like=x)
    if bias is not None:
        check_rows("bias", bias, weight.shape[:1], like=x)
    if out is None:
        out = x.new_empty((x.shape[0], weight.shape[0]))
    check_rows("out", out, (x.shape[0], weight.shape[0]), like=x)
    if x.shape[0] == 0:
        return out
    if backend_for(x) is Backend.REFERENCE:
        return out.copy_(matmul_invariant_reference(x, weight, bias))
    from specdec_kernels.matmul_invariant.kernel import matmul_invariant_triton  # imports Triton

    matmul_invariant_triton(x, weight, bias, out, config or heuristic(weight.shape[0], weight.itemsize))
    return out
