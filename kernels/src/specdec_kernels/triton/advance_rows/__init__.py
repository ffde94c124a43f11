"""`advance_rows`: the numbers of a draft loop after the verdict on its last draft, without the host."""

from __future__ import annotations

from typing import NamedTuple

import torch

from specdec_kernels.triton.advance_rows.reference import advance_rows_reference
from specdec_kernels.triton.arguments import check_tensor
from specdec_kernels.triton.dispatch import Backend, backend_for
from specdec_kernels.triton.launch import LaunchConfig

__all__ = ["LoopRows", "Masks", "advance_rows"]


class Masks(NamedTuple):
    """Mask tokens that follow the new tokens of each request."""

    token_id: int
    num_more: int
    """How many more than the draft is deep; -1 if the last new token's row predicts a token too."""
    most: int
    """The most of a request; 0 if there are none."""


NO_MASKS = Masks(0, 0, 0)


class LoopRows(NamedTuple):
    """The numbers of a draft loop, int64: of T rows of new tokens, request after request, and of B requests."""

    token_ids: torch.Tensor
    """`[T]` 0 in padding rows."""
    positions: torch.Tensor
    """`[T]` likewise."""
    slots: torch.Tensor
    """`[T]` -1 in padding rows."""
    query_starts: torch.Tensor
    """`[R + 1]` first row of each request, R at least B; those that have no rows follow all others."""
    context_lens: torch.Tensor
    """`[R]` rows in the cache once the pass has run; 0 without rows."""
    last_rows: torch.Tensor
    """`[T]` row of the last new token of each request, 0 without rows, and behind them."""
    cached: torch.Tensor
    """`[B]` as `context_lens`, without masks."""
    next_positions: torch.Tensor
    """`[B]` position of the first token to draft."""
    first_slots: torch.Tensor
    """`[B]` slot of position 0."""
    depths: torch.Tensor
    """`[B]` the most nodes of the draft on a path; 0 for what is no request."""
    ends: torch.Tensor
    """`[B]` number of tokens at which the text ends."""
    verdict: torch.Tensor
    """`[4]` 1 if the numbers are those of the last draft, 0 if they are those of the next one already; places, in memory, of
    the counts of accepted nodes and of the emitted tokens; and columns of the latter."""


def advance_rows(
    rows: LoopRows,
    memory: torch.Tensor,
    most_new: int,
    *,
    masks: Masks = NO_MASKS,
    config: LaunchConfig | None = None,
) -> None:
    """Write the numbers of the next draft in place of those of the last one, whose verdict is in memory.

    A request emits the tokens of its accepted nodes and one more. Those whose rows a draft has not left in the cache are the
    new ones: a draft of d nodes leaves at most `d + 1 - most_new`. A draft is no deeper than the text before its end has room,
    the token after it included. Then `verdict[0]` is 1, also if nothing else was written. Nothing is copied to the host, so the
    caller must keep places within the memory, and counts within depths.

    Args:
        rows: the numbers.
        memory: `[M]` int64: counts `[B]` and tokens `[B, columns]` of the verdict, each at its place.
        most_new: the most new tokens of a request.
        masks: what follows them.
        config: launch parameters of the Triton kernel; None uses the heuristic.

    Raises:
        ValueError: naming the argument whose shape, type, device or layout is wrong.
    """
    num_rows, size, num_requests = len(rows.token_ids), len(rows.cached), len(rows.context_lens)
    shapes = [(num_rows,)] * 3 + [(num_requests + 1,), (num_requests,), (num_rows,)] + [(size,)] * 5 + [(4,)]
    for (name, part), shape in zip(rows._asdict().items(), shapes, strict=True):
        check_tensor(f"rows.{name}", part, shape, (torch.int64,), rows.token_ids)
    check_tensor("memory", memory, memory.shape[:1], (torch.int64,), rows.token_ids)
    if num_requests < size:
        raise ValueError(f"rows.context_lens must have at least {size} numbers, not {num_requests}")
    if backend_for(memory) is Backend.REFERENCE:
        advance_rows_reference(rows, memory, most_new, masks)
        return
    from specdec_kernels.triton.advance_rows.kernel import advance_rows_triton  # imports Triton

    advance_rows_triton(rows, memory, most_new, masks, config)
