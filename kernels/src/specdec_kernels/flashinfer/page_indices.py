"""A packed pass in the form that FlashInfer reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces import Segment

_OWN = (0, 0)


@dataclass(frozen=True, slots=True)
class PageIndices:
    """The pages that some requests of a pass read, on the host; int32, as FlashInfer plans with them there."""

    rows: torch.Tensor
    """`[n]` int64 rows of the pass."""
    qo_indptr: torch.Tensor
    """`[B + 1]` where the rows of each request begin among these."""
    kv_indptr: torch.Tensor
    """`[B + 1]` where the pages of each request begin in `kv_indices`."""
    kv_indices: torch.Tensor
    """Pages of all requests."""
    last_page_lens: torch.Tensor
    """`[B]` tokens in the last page of each request, from 1 on."""

    @classmethod
    def of(
        cls, segments: list[Segment], page_size: int, shared: Mapping[int, tuple[int, int]]
    ) -> PageIndices:
        """Return those of segments.

        Args:
            segments: of a pass; at least one.
            page_size: divides the first slot of each, and what it shares.
            shared: see `KVCache.shared`.
        """
        places = [(s.num_rows, s.kv_len, s.first_slot, *shared.get(s.first_slot, _OWN)) for s in segments]
        counts, lengths, *slots = np.array(places, np.int64).T
        num_pages = -(-lengths // page_size)
        firsts, shared_firsts, num_shared = (np.repeat(each // page_size, num_pages) for each in slots)
        kv_indptr = _starts(num_pages)
        columns = np.arange(kv_indptr[-1]) - np.repeat(kv_indptr[:-1], num_pages)
        pages = columns + np.where(columns < num_shared, shared_firsts, firsts)
        last = lengths - (num_pages - 1) * page_size
        rows = np.concatenate([np.arange(s.row, s.row + s.num_rows) for s in segments])
        narrow = (
            torch.from_numpy(each.astype(np.int32)) for each in (_starts(counts), kv_indptr, pages, last)
        )
        return cls(torch.from_numpy(rows), *narrow)


def tree_mask(segments: list[Segment], window: int | None) -> torch.Tensor:
    """Return bool, `num_rows * kv_len` of each tree after the other: what its rows see, row by row, on the host.

    FlashInfer's own window counts rows, which in a tree are not positions, so the mask has the window too.
    """
    masks = []
    for segment in segments:
        assert segment.tree_mask is not None
        num_common = segment.num_cached - segment.num_branched
        seen = np.ones((segment.num_rows, segment.kv_len), bool)
        seen[:, num_common:] = segment.tree_mask.numpy()
        if window is not None:  # a row sees one token of each position up to its own
            positions = seen.cumsum(1) - 1
            seen &= positions > positions[:, -1:] - window
        masks.append(seen.reshape(-1))
    return torch.from_numpy(np.concatenate(masks))


def _starts(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate((np.zeros(1, np.int64), counts.cumsum()))
