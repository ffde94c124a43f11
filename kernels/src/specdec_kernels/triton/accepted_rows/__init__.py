"""`accepted_rows`: the rows of the tokens that a verdict emits, without the host."""

from __future__ import annotations

import torch

from specdec_kernels.triton.accepted_rows.reference import accepted_rows_reference
from specdec_kernels.triton.arguments import check_tensor, shown
from specdec_kernels.triton.dispatch import Backend, backend_for
from specdec_kernels.triton.launch import LaunchConfig

__all__ = ["accepted_rows"]


def accepted_rows(
    states: torch.Tensor,
    row_starts: torch.Tensor,
    num_accepted: torch.Tensor,
    *,
    nodes: torch.Tensor | None = None,
    out: torch.Tensor,
    config: LaunchConfig | None = None,
) -> torch.Tensor:
    """Copy the rows of a pass over drafts that predicted the tokens that are emitted, request after request.

    Request b emits a token more than it has accepted nodes; row `row_starts[b]` and those of the accepted nodes, n of which has
    row `row_starts[b] + 1 + n`, predicted these. What of them has no room in `out` is left out, and the rows of `out` behind
    them are left as they are. Nothing is copied to the host; rows that the pass does not have are not read.

    Args:
        states: `[N, R, H]` N kinds of states of each row, unit stride along H.
        row_starts: `[B]` int64 first row of each request.
        num_accepted: `[B]` int64 accepted nodes of each request, -1 for one that emits nothing.
        nodes: `[B, W]` int64 accepted nodes of trees, W at least all of `num_accepted`; None for chains, whose first ones are.
        out: `[N, T, H]` contiguous, of the dtype of the states; written.
        config: launch parameters of the Triton kernel; None uses the heuristic.

    Returns:
        `out`.

    Raises:
        ValueError: naming the argument whose shape, type, device or layout is wrong.
    """
    if states.dim() != 3 or states.stride(-1) != 1:
        raise ValueError(f"states must be [N, R, H] with unit stride along H, not {shown(states)}")
    if out.dim() != 3 or (out.shape[0], out.shape[2]) != (states.shape[0], states.shape[2]):
        raise ValueError(f"out must be [{states.shape[0]}, T, {states.shape[2]}], not {shown(out)}")
    check_tensor("out", out, out.shape, (states.dtype,), states)
    check_tensor("row_starts", row_starts, row_starts.shape[:1], (torch.int64,), states)
    check_tensor("num_accepted", num_accepted, row_starts.shape, (torch.int64,), states)
    if nodes is not None:
        check_tensor("nodes", nodes, (len(row_starts), *nodes.shape[1:2]), (torch.int64,), states)
    if not out.numel() or not len(row_starts):
        return out
    if backend_for(states) is Backend.REFERENCE:
        accepted_rows_reference(states, row_starts, num_accepted, nodes, out)
        return out
    from specdec_kernels.triton.accepted_rows.kernel import accepted_rows_triton  # imports Triton

    accepted_rows_triton(states, row_starts, num_accepted, nodes, out, config)
    return out
