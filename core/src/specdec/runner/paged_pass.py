"""How the paged attention kernels see a packed pass."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np
import torch

from specdec.runner.packed import PackedBatch, Segment
from specdec.runner.sent import sent

_MAX_PAGE = 16
_MIN_BOUND = 256


@dataclass(frozen=True, slots=True)
class PagedPass:
    """Where the rows of a pass and their contexts lie, on the device, made once for all its layers.

    B counts requests as the kernel sees them: segments, or single rows of a tree.
    """

    page_size: int
    """Slots of a page: what divides the first slot of every request, since each lies in one run of slots."""
    slots: torch.Tensor
    """`[T]` int64 cache slot of each row."""
    query_starts: torch.Tensor
    """`[B + 1]` int64 first row of each request."""
    context_lens: torch.Tensor
    """`[B]` int64 tokens that each request's last row sees."""
    block_tables: torch.Tensor
    """`[B, M]` int64 pages of each request."""
    max_context_len: int
    """What no context exceeds; a power of two, so that few kernels serve all lengths."""
    visible: torch.Tensor | None = None
    """`[T, W]` bool which of its request's rows in this pass each row of a tree sees; rows of chains see all before them."""
    positions: torch.Tensor | None = None
    """`[T]` int64 position of each row; with `visible` only."""
    outputs: dict[tuple[int, ...], torch.Tensor] | None = None
    """Of a pass with padding rows: where attention writes, by shape. It leaves those rows as they are, so they must hold
    numbers from the start. None: new tensors."""


def paged_pass(batch: PackedBatch, num_slots: int, *, is_exact: bool) -> PagedPass:
    """Return a pass as the kernels see it.

    Args:
        batch: the pass.
        num_slots: slots of the cache.
        is_exact: whether each row of a tree must sum in the order of positions, as a row of a chain does.
    """
    segments = batch.segments
    device = batch.token_ids.device
    has_trees = any(segment.tree_mask is not None for segment in segments)
    if has_trees and (is_exact or any(segment.num_branched for segment in segments)):
        return _by_paths(batch, _slots(batch))
    page_size = gcd(_MAX_PAGE, num_slots, *(segment.first_slot for segment in segments))
    ends = [segment.row + segment.num_rows for segment in segments]
    lengths = [segment.kv_len for segment in segments]
    pages = [segment.first_slot // page_size for segment in segments]
    starts, context_lens, first_pages = _sent([0, *ends], lengths, pages, device=device)
    bound = _bound(max(lengths))
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
        visible=visible,
        positions=positions,
    )


def _by_paths(batch: PackedBatch, slots: torch.Tensor) -> PagedPass:
    """Return a pass in which each row of a tree is a request whose context is its path, token by token.

    It then sums in the order of positions, whatever its siblings are, and branches that lie in the cache already, which
    masks over the rows of a pass cannot tell apart, are left out like all others.
    """
    device = batch.token_ids.device
    starts, firsts, lengths = [0], [], []
    for segment in batch.segments:
        for end in _row_ends(segment):
            starts.append(segment.row + end)
            firsts.append(segment.first_slot)
            lengths.append(segment.kv_len)
    bound = _bound(max(lengths))
    query_starts, context_lens, first_slots = _sent(starts, lengths, firsts, device=device)
    # One column more takes what a row does not see.
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
    """Return where the requests that a segment counts for end, relative to its first row."""
    step = segment.num_rows if segment.tree_mask is None else 1
    return range(step, segment.num_rows + 1, step)


def _tree_rows(batch: PackedBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `PagedPass.visible` and `PagedPass.positions`; no segment has branches in the cache."""
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


def _sent(*lists: list[int], device: torch.device) -> tuple[torch.Tensor, ...]:
    """Return lists of integers as tensors on a device, sent there together."""
    together = sent(torch.tensor([number for numbers in lists for number in numbers]), device)
    return tuple(together.split([len(numbers) for numbers in lists]))


def _bound(length: int) -> int:
    """Return the power of two that contexts up to `length` are cut up for."""
    return max(_MIN_BOUND, 1 << (length - 1).bit_length())
