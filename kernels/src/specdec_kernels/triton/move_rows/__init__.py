"""`move_rows`: the numbers of a pass behind drafts whose verdict the host has not read."""

from __future__ import annotations

from typing import NamedTuple

import torch

from specdec_kernels.triton.arguments import check_tensor
from specdec_kernels.triton.dispatch import Backend, backend_for
from specdec_kernels.triton.launch import LaunchConfig
from specdec_kernels.triton.move_rows.reference import move_rows_reference

__all__ = ["NUM_GROWING", "PassRows", "move_rows"]

NUM_GROWING = 2
"""How many arrays with a number of each request may grow with texts."""


class PassRows(NamedTuple):
    """The numbers of a pass, int64: of T rows, request after request, and of B requests."""

    positions: torch.Tensor
    """`[T]`"""
    slots: torch.Tensor
    """`[T]`"""
    sources: torch.Tensor
    """`[T]` where in memory each row's token id is."""
    query_starts: torch.Tensor
    """`[B + 1]` first row of each request."""
    context_lens: torch.Tensor
    """`[B]` rows in the cache once the pass has run."""
    verdict_rows: torch.Tensor
    """`[B]` each request's row in the verdict; -1 for what does not move."""
    verdict: torch.Tensor
    """`[5]` places, in memory, of the counts of accepted nodes and of the emitted tokens; columns of the latter; and places
    of arrays `[B]` that grow with texts, or -1."""


def move_rows(rows: PassRows, memory: torch.Tensor, *, config: LaunchConfig | None = None) -> None:
    """Move requests behind the nodes that a verdict in memory accepts, in place.

    A request's numbers are those for a draft that is rejected. With m accepted nodes its positions, slots, context and whatever
    else of it grows with its text grow by m, and its first row takes the last emitted token.

    Args:
        rows: the numbers.
        memory: `[M]` int64: counts `[V]` and tokens `[V, columns]` of the verdict, and what grows.
        config: launch parameters of the Triton kernel; None uses the heuristic.

    Raises:
        ValueError: naming the argument whose shape, type, device or layout is wrong.
    """
    num_rows, size = len(rows.positions), len(rows.context_lens)
    shapes = [(num_rows,)] * 3 + [(size + 1,), (size,), (size,), (3 + NUM_GROWING,)]
    for (name, part), shape in zip(rows._asdict().items(), shapes, strict=True):
        check_tensor(f"rows.{name}", part, shape, (torch.int64,), rows.positions)
    check_tensor("memory", memory, memory.shape[:1], (torch.int64,), rows.positions)
    if backend_for(memory) is Backend.REFERENCE:
        move_rows_reference(rows, memory)
        return
    from specdec_kernels.triton.move_rows.kernel import move_rows_triton  # imports Triton

    move_rows_triton(rows, memory, config)
