"""`silu_mul`: the gated activation of a feed-forward layer."""

from __future__ import annotations

import torch

from specdec_kernels.triton.arguments import check_input, check_rows
from specdec_kernels.triton.dispatch import Backend, backend_for
from specdec_kernels.triton.launch import LaunchConfig
from specdec_kernels.triton.silu_mul.reference import silu_mul_reference

__all__ = ["silu_mul"]


def silu_mul(
    gate: torch.Tensor,
    up: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    config: LaunchConfig | None = None,
) -> torch.Tensor:
    """Return `silu(gate) * up`, computed in float32 and rounded once.

    Gated linear units (https://arxiv.org/abs/2002.05202). Results do not depend on the batch.

    Args:
        gate: `[T, F]` float32, float16 or bfloat16, unit stride along F; may be half of a fused projection.
        up: `[T, F]` of the same type, unit stride along F.
        out: `[T, F]` to write to, may be `gate` or `up`; None allocates it.
        config: launch parameters of the Triton kernel; None uses the heuristic.

    Raises:
        ValueError: naming the argument whose shape, type, device or layout is wrong.
    """
    check_input("gate", gate, ("T", "F"))
    check_rows("up", up, gate.shape, like=gate)
    if out is None:
        out = gate.new_empty(gate.shape)
    check_rows("out", out, gate.shape, like=gate)
    if gate.shape[0] == 0:
        return out
    if backend_for(gate) is Backend.REFERENCE:
        return out.copy_(silu_mul_reference(gate, up))
    from specdec_kernels.triton.silu_mul.kernel import silu_mul_triton  # imports Triton

    silu_mul_triton(gate, up, out, config)
    return out
