"""Results of operations on token ids: int64 tensors, padded with -1."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

import torch

from specdec_kernels.triton.arguments import check_tensor

PADDING_ID = -1


class PathVerdict(NamedTuple):
    """Verification result of every request's chain or tree."""

    num_accepted: torch.Tensor
    """`[B]` int64: accepted drafted tokens."""
    token_ids: torch.Tensor
    """`[B, N + 1]` int64: those tokens and the correction or bonus token, padded with -1."""
    accepted_nodes: torch.Tensor
    """`[B, N]` int64: the accepted nodes, from the root's child down, padded with -1."""
    first_invalid: torch.Tensor
    """`[B]` int64: of the rows that these tokens were drawn from, in order, the first that has a NaN or nothing above -inf; or
    -1. Its token and those after it mean nothing."""


class ChainDraft(NamedTuple):
    """A chain per request."""

    token_ids: torch.Tensor
    """`[B, width]` int64, padded with -1."""
    num_nodes: torch.Tensor
    """`[B]` int64: drafted tokens of each request."""


Result = TypeVar("Result", PathVerdict, ChainDraft)


def prepared(
    kind: type[Result], shapes: Sequence[tuple[int, ...]], out: Result | None, like: torch.Tensor
) -> Result:
    """Return `out` after a check, or new tensors if it is None.

    Args:
        kind: type of the result.
        shapes: of its tensors.
        out: the caller's output tensors.
        like: a tensor on the required device.

    Raises:
        ValueError: naming the tensor whose shape, type, device or layout is wrong.
    """
    if out is None:
        return kind._make(torch.empty(shape, dtype=torch.int64, device=like.device) for shape in shapes)
    for name, tensor, shape in zip(kind._fields, out, shapes, strict=True):
        check_tensor(f"out.{name}", tensor, shape, (torch.int64,), like)
    return out


def written(out: Result, tensors: Iterable[torch.Tensor]) -> Result:
    """Copy `tensors` to `out` and return `out`."""
    for target, source in zip(out, tensors, strict=True):
        target.copy_(source)
    return out
