"""A packed pass in the form that the paged attention kernels read."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from math import gcd

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces import sent_together
from specdec_kernels.triton.block_tables import block_tables
from specdec_kernels.triton.paged_attention.tree import WORD
from specdec_runtime.interfaces import PackedBatch, Segment

Int64s = npt.NDArray[np.int64]
Shared = Mapping[int, tuple[int, int]]
"""By first slot of a request: slot of position 0 of its shared prefix, and number of shared rows."""
_ZERO = np.zeros(1, np.int64)
_OWN = (0, 0)
"""What a request shares whose rows are all its own."""

_MAX_PAGE = 16
_BOUND, _STEP = 256, 8
"""The least bound on contexts, and the factor from one to the next: few kernels and recordings, tables not much too wide."""


class AttentionOutputs:
    """What attention writes to in recorded passes: one tensor for all layers of a shape.

    Attention does not write padding rows, whose numbers are finite all the same: 0, or those of an earlier pass.

    Args:
        num_rows: the most rows of a pass.
    """

    def __init__(self, num_rows: int) -> None:
        self._num_rows = num_rows
        self._places: dict[tuple[int, int], torch.Tensor] = {}

    @property
    def num_bytes(self) -> int:
        """Their memory."""
        return sum(place.nbytes for place in self._places.values())

    def like(self, query: torch.Tensor, width: int) -> torch.Tensor:
        """Return the place `[T, H, width]` of a query `[T, H, D]`."""
        num_heads = query.shape[1]
        place = self._places.get((num_heads, width))
        if place is None:
            place = query.new_zeros((self._num_rows, num_heads, width))
            self._places[num_heads, width] = place
        return place[: len(query)]


@dataclass(frozen=True, slots=True)
class PagedPass:
    """Locations of a pass's rows and of their contexts in the cache, on the device, made once for all layers.

    B counts requests as the kernel sees them: segments, or single rows of a tree.
    """

    page_size: int
    """Slots per page. It divides the first slot of every request, and the number and first slot of the rows it shares."""
    slots: torch.Tensor
    """`[T]` int64 cache slot of each row."""
    query_starts: torch.Tensor
    """`[B + 1]` int64 first row of each request."""
    context_lens: torch.Tensor
    """`[B]` int64 number of tokens that each request's last row sees."""
    block_tables: torch.Tensor
    """`[B, M]` int64 pages of each request."""
    max_context_len: int
    """Upper bound on the context lengths; of few values, so that few kernels are compiled for all lengths."""
    tree_mask: torch.Tensor | None = None
    """`[T, W]` int64: for each row of a tree, as bits, which rows of its request in this pass it sees; see `pack_tree_mask`."""
    positions: torch.Tensor | None = None
    """`[T]` int64 position of each row; only with `tree_mask`."""
    outputs: AttentionOutputs | None = None
    """For passes with padding rows; None allocates new tensors."""
    is_causal: bool = True
    """Whether a row sees no later one of its request."""


@dataclass(frozen=True, slots=True)
class PassNumbers:
    """The same on the host, where the tables are only begun."""

    page_size: int
    bound: int
    """`PagedPass.max_context_len`."""
    query_starts: Int64s
    context_lens: Int64s
    first_pages: Int64s
    """`[B]` first page of each request; the others follow it, but for those that are shared and `branches`."""
    num_shared: Int64s
    """`[B]` how many of its pages, the first ones, are shared: other requests read them too."""
    shared_pages: Int64s
    """`[B]` the first of these."""
    tree_mask: Int64s | None = None
    positions: Int64s | None = None
    branches: Int64s | None = None
    """`[2, B, W]` columns of a row's table, and the slots there instead; for rows of trees whose context is a path. Column
    `bound` is read by nobody."""
    is_causal: bool = True
    """Whether a row sees no later one of its request."""


def paged_pass(batch: PackedBatch, num_slots: int, shared: Shared, *, is_exact: bool) -> PagedPass:
    """Return a pass in the form that the kernels read, sent by one transfer.

    Args:
        batch: the pass.
        num_slots: number of slots of the cache.
        shared: rows of requests that are not in their runs.
        is_exact: whether each row of a tree must sum in the order of positions, as a row of a chain does.
    """
    numbers = pass_numbers(batch.segments, num_slots, shared, is_exact=is_exact)
    pages = numbers.first_pages, numbers.num_shared, numbers.shared_pages
    more = [part for part in (numbers.tree_mask, numbers.positions, numbers.branches) if part is not None]
    starts, lengths, firsts, counts, shared_pages, *rest = sent_together(
        [numbers.query_starts, numbers.context_lens, *pages, *more], batch.token_ids.device
    )
    tables = tables_of(firsts, counts, shared_pages, table_width(numbers))
    tree_mask = positions = None
    if numbers.branches is not None:
        add_branches(tables, rest[0])
    elif rest:
        tree_mask, positions = rest
    rows = _slots(batch), starts, lengths, tables
    return PagedPass(
        numbers.page_size, *rows, numbers.bound, tree_mask, positions, is_causal=numbers.is_causal
    )


def pass_numbers(segments: list[Segment], num_slots: int, shared: Shared, *, is_exact: bool) -> PassNumbers:
    """Return what the kernels read of these segments; see `paged_pass`."""
    has_trees = any(segment.tree_mask is not None for segment in segments)
    is_causal = not (has_trees and all(map(_is_block, segments)))
    if has_trees and (is_exact or any(segment.num_branched for segment in segments)):
        return _by_paths(segments, shared)
    table = np.array(
        [
            (s.row + s.num_rows, s.num_cached + s.num_rows, s.first_slot, *shared.get(s.first_slot, _OWN))
            for s in segments
        ],
        np.int64,
    )
    ends, lengths, *places = np.ascontiguousarray(table.T)
    # A page must not have rows of two requests, so that its size divides wherever one begins or shares.
    page_size = gcd(page_size_of(num_slots), *(int(np.gcd.reduce(each)) for each in places))
    firsts, shared_pages, num_shared = (each // page_size for each in places)
    starts = np.concatenate((_ZERO, ends))
    mask, positions = _tree_rows(segments) if has_trees and is_causal else (None, None)
    pages = firsts, num_shared, shared_pages
    bound = bound_of(int(lengths.max()))
    return PassNumbers(page_size, bound, starts, lengths, *pages, mask, positions, is_causal=is_causal)


def tables_of(
    first_pages: torch.Tensor,
    num_shared: torch.Tensor,
    shared_pages: torch.Tensor,
    width: int,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return block tables `[B, width]` of what `PassNumbers` calls so, by one launch."""
    device = first_pages.device
    with (
        torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    ):  # which need not be the current one
        return block_tables(first_pages, num_shared, shared_pages, width, out=out)


def table_width(numbers: PassNumbers) -> int:
    """Return the columns of the block tables."""
    return -(-numbers.bound // numbers.page_size) + (numbers.branches is not None)


def add_branches(tables: torch.Tensor, branches: torch.Tensor) -> None:
    """Write slots into tables in place; see `PassNumbers.branches`."""
    tables.scatter_(1, branches[0], branches[1])


@cache
def page_size_of(num_slots: int) -> int:
    """Return the page size of a cache in which no request begins within a page."""
    return gcd(_MAX_PAGE, num_slots)


@cache
def bound_of(length: int) -> int:
    """Return the bound on contexts up to `length`."""
    bound = _BOUND
    while bound < length:
        bound *= _STEP
    return bound


def _by_paths(segments: list[Segment], shared: Shared) -> PassNumbers:
    """Return a pass in which each row of a tree is a request of its own, with its path as the context.

    Each row then sums in the order of positions, whatever its siblings are. This also excludes the invisible branches
    that are already in the cache, which a mask over the rows of the pass cannot express.
    """
    bound = bound_of(max(segment.kv_len for segment in segments))
    starts, lengths, branches = [0], list[int](), list[Int64s]()
    pages = list[tuple[int, int, int]]()
    width = max(s.tree_mask.shape[1] for s in segments if s.tree_mask is not None)
    for segment in segments:
        place = segment.first_slot, *shared.get(segment.first_slot, _OWN)
        if segment.tree_mask is None:
            starts.append(segment.row + segment.num_rows)
            pages.append(place)
            lengths.append(segment.kv_len)
            branches.append(_no_branches(1, width, bound))
            continue
        # The context of a row of a tree: the common rows, then in place of the next columns the slots of its path.
        seen, num_common = segment.tree_mask.numpy(), segment.num_cached - segment.num_branched
        starts += range(segment.row + 1, segment.row + segment.num_rows + 1)
        pages += [place] * segment.num_rows
        lengths += (num_common + seen.sum(1)).tolist()
        places = _no_branches(segment.num_rows, width, bound)
        places[0, :, : seen.shape[1]] = np.where(seen, num_common + seen.cumsum(1) - 1, bound)
        places[1, :, : seen.shape[1]] = segment.first_slot + num_common + np.arange(seen.shape[1])
        branches.append(places)
    ends, contexts = np.array(starts, np.int64), np.array(lengths, np.int64)
    firsts, shared_slots, num_shared = np.ascontiguousarray(np.array(pages, np.int64).T)
    columns = np.concatenate(branches, 1)
    return PassNumbers(1, bound, ends, contexts, firsts, num_shared, shared_slots, branches=columns)


def _is_block(segment: Segment) -> bool:
    """Return whether the rows of a request see each other, the first one the last one too."""
    return segment.tree_mask is not None and segment.num_rows > 1 and bool(segment.tree_mask[0, -1])


def _no_branches(num_rows: int, width: int, bound: int) -> Int64s:
    places = np.zeros((2, num_rows, width), np.int64)
    places[0] = bound
    return places


def _tree_rows(segments: list[Segment]) -> tuple[Int64s, Int64s]:
    """Return `tree_mask` and `positions` of a pass; no segment may have branches in the cache."""
    num_rows = segments[-1].row + segments[-1].num_rows
    width = max(s.tree_mask.shape[1] for s in segments if s.tree_mask is not None)
    visible = np.ones((num_rows, -(-width // WORD) * WORD), bool)
    positions = np.concatenate([np.arange(s.num_cached, s.kv_len) for s in segments])
    for segment in segments:
        if segment.tree_mask is not None and segment.depths is not None:
            rows = slice(segment.row, segment.row + segment.num_rows)
            visible[rows, : segment.num_rows] = segment.tree_mask.numpy()
            positions[rows] = segment.num_cached + segment.depths.numpy()
    return np.packbits(visible, 1, "little").view(np.int64), positions


def _slots(batch: PackedBatch) -> torch.Tensor:
    if batch.slots is not None:
        return batch.slots
    only = batch.segments[0]
    start = only.first_slot + only.num_cached
    return torch.arange(start, start + only.num_rows, device=batch.token_ids.device)
