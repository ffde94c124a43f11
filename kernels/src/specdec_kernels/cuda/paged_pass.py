"""A packed pass in the form that the paged attention kernels read."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces import PackedBatch, Segment
from specdec.runner import sent, sent_together

Int64s = npt.NDArray[np.int64]
_ZERO = np.zeros(1, np.int64)

_MAX_PAGE = 16
_BOUND, _STEP = 256, 8
"""The least bound on contexts, and the factor from one to the next: few kernels and recordings, tables not much too wide."""


@dataclass(frozen=True, slots=True)
class PagedPass:
    """Locations of a pass's rows and of their contexts in the cache, on the device, made once for all layers.

    B counts requests as the kernel sees them: segments, or single rows of a tree.
    """

    page_size: int
    """Slots per page. It divides the first slot of every request, because each request has one run of slots."""
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
    first_pages: torch.Tensor | None = None
    """`[B]` first page of each request whose others follow it; None if a request's pages are anywhere."""
    visible: torch.Tensor | None = None
    """`[T, W]` bool: for each row of a tree, which rows of its request in this pass it sees. Rows of chains see all
    rows before them."""
    positions: torch.Tensor | None = None
    """`[T]` int64 position of each row; only with `visible`."""
    outputs: dict[tuple[int, ...], torch.Tensor] | None = None
    """Output tensors of attention by shape, for passes with padding rows. Attention does not write the padding rows,
    so they must be initialised. None allocates new tensors."""


def paged_pass(batch: PackedBatch, num_slots: int, *, is_exact: bool) -> PagedPass:
    """Return a pass in the form that the kernels read.

    Args:
        batch: the pass.
        num_slots: number of slots of the cache.
        is_exact: whether each row of a tree must sum in the order of positions, as a row of a chain does.
    """
    segments = batch.segments
    device = batch.token_ids.device
    has_trees = any(segment.tree_mask is not None for segment in segments)
    if has_trees and (is_exact or any(segment.num_branched for segment in segments)):
        return _by_paths(batch, _slots(batch))
    numbers = pass_numbers(segments, num_slots)
    page_size, bound = numbers.page_size, numbers.bound
    arrays = [numbers.query_starts, numbers.context_lens, numbers.first_pages]
    starts, context_lens, first_pages = sent_together(arrays, device)
    visible = positions = None
    if has_trees:
        visible, positions = _tree_rows(batch)
    return PagedPass(
        page_size=page_size,
        slots=_slots(batch),
        query_starts=starts,
        context_lens=context_lens,
        block_tables=first_pages[:, None] + torch.arange(-(-bound // page_size), device=device),
        max_context_len=bound,
        first_pages=first_pages,
        visible=visible,
        positions=positions,
    )


@dataclass(frozen=True, slots=True)
class PassNumbers:
    """The same of a pass without branches in the cache, on the host."""

    page_size: int
    bound: int
    """`PagedPass.max_context_len`."""
    query_starts: Int64s
    context_lens: Int64s
    first_pages: Int64s
    """`[B]` first page of each request; the others follow it."""


def pass_numbers(segments: list[Segment], num_slots: int) -> PassNumbers:
    """Return what the kernels read of these segments."""
    table = np.array(
        [(s.row + s.num_rows, s.num_cached + s.num_rows, s.first_slot) for s in segments], np.int64
    )
    ends, lengths, firsts = np.ascontiguousarray(table.T)
    page_size = gcd(page_size_of(num_slots), int(np.gcd.reduce(firsts)))
    starts = np.concatenate((_ZERO, ends))
    return PassNumbers(page_size, bound_of(int(lengths.max())), starts, lengths, firsts // page_size)


def page_size_of(num_slots: int) -> int:
    """Return the page size of a cache in which no request begins within a page."""
    return gcd(_MAX_PAGE, num_slots)


def bound_of(length: int) -> int:
    """Return the bound on contexts up to `length`."""
    bound = _BOUND
    while bound < length:
        bound *= _STEP
    return bound


def _by_paths(batch: PackedBatch, slots: torch.Tensor) -> PagedPass:
    """Return a pass in which each row of a tree is a request of its own, with its path as the context.

    Each row then sums in the order of positions, whatever its siblings are. This also excludes the invisible branches
    that are already in the cache, which a mask over the rows of the pass cannot express.
    """
    device = batch.token_ids.device
    starts, firsts, lengths = [0], [], []
    for segment in batch.segments:
        for end in _row_ends(segment):
            starts.append(segment.row + end)
            firsts.append(segment.first_slot)
            lengths.append(segment.kv_len)
    bound = 1 << (max(lengths) - 1).bit_length()
    arrays = [np.array(numbers, np.int64) for numbers in (starts, lengths, firsts)]
    query_starts, context_lens, first_slots = sent_together(arrays, device)
    # The extra column receives the tokens that a row does not see.
    tables = first_slots[:, None] + torch.arange(bound + 1, device=device)
    request = 0
    for segment in batch.segments:
        end = request + len(_row_ends(segment))
        seen = segment.tree_mask
        if seen is not None:
            num_common = segment.num_cached - segment.num_branched
            rank = num_common + seen.cumsum(1) - 1
            first = segment.first_slot + num_common
            tokens = torch.arange(first, first + seen.shape[1], device=device).expand(seen.shape)
            tables[request:end].scatter_(1, torch.where(seen, rank, bound), tokens)
            context_lens[request:end] = num_common + seen.sum(1)
        request = end
    return PagedPass(1, slots, query_starts, context_lens, tables, bound)


def _row_ends(segment: Segment) -> range:
    """Return the ends, relative to the segment's first row, of the kernel requests that make up a segment."""
    step = segment.num_rows if segment.tree_mask is None else 1
    return range(step, segment.num_rows + 1, step)


def _tree_rows(batch: PackedBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `PagedPass.visible` and `PagedPass.positions`; no segment may have branches in the cache."""
    device = batch.token_ids.device
    num_rows = batch.token_ids.shape[0]
    width = max(s.tree_mask.shape[1] for s in batch.segments if s.tree_mask is not None)
    visible = torch.ones((num_rows, width), dtype=torch.bool, device=device)
    places = np.concatenate([np.arange(s.num_cached, s.kv_len) for s in batch.segments])
    positions = sent(torch.from_numpy(places), device)
    for segment in batch.segments:
        if segment.tree_mask is not None and segment.depths is not None:
            rows = slice(segment.row, segment.row + segment.num_rows)
            visible[rows, : segment.num_rows] = segment.tree_mask
            positions[rows] = segment.num_cached + segment.depths
    return visible, positions


def _slots(batch: PackedBatch) -> torch.Tensor:
    if batch.slots is not None:
        return batch.slots
    only = batch.segments[0]
    start = only.first_slot + only.num_cached
    return torch.arange(start, start + only.num_rows, device=batch.token_ids.device)
