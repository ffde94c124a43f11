"""`matmul_invariant`: a batch-invariant linear layer."""

from __future__ import annotations

import torch

from specdec_kernels.triton.arguments import check_input, check_rows
from specdec_kernels.triton.dispatch import Backend, backend_for
from specdec_kernels.triton.matmul_invariant.config import LaunchConfig, heuristic
from specdec_kernels.triton.matmul_invariant.reference import matmul_invariant_reference

__all__ = ["matmul_invariant"]


def matmul_invariant(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    config: LaunchConfig | None = None,
) -> torch.Tensor:
    """Return `x @ weight.T + bias`, summed in float32 and rounded once; a row has the same bits for any T.

    The kernel's tiles and summation order depend on the shape and dtype of the weight, never on T. A token therefore gets
    the same logits when verified in a draft as when decoded alone
    (https://thinkingmachines.ai/blog/defeating-nondeterminism-in-llm-inference). This holds for one configuration on one
    device. The reference uses torch's products and gives no such guarantee.

    Args:
        x: `[T, K]` float32, float16 or bfloat16, unit stride along K.
        weight: `[N, K]` of the same type, unit stride along K.
        bias: `[N]` of the same type, contiguous; None adds nothing.
        out: `[T, N]` to write to, not x; None allocates it.
        config: launch parameters of the Triton kernel; None uses the heuristic.

    Raises:
        ValueError: naming the argument whose shape, type, device or layout is wrong.
    """
    check_input("x", x, ("T", "K"))
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
    from specdec_kernels.triton.matmul_invariant.kernel import matmul_invariant_triton  # imports Triton

    chosen = config or heuristic(weight.shape[0], weight.itemsize)
    matmul_invariant_triton(x, weight, bias, out, chosen)
    return out
