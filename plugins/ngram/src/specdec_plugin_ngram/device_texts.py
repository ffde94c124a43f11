"""The texts of requests, on the device."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces import NewRows, ProposeBatch

Int64s = npt.NDArray[np.int64]


class Taken(NamedTuple):
    """What is to be written into the texts, and where they are."""

    rows: NewRows
    slots: Int64s
    """`[T]` where each new token is in the texts, as one line after another."""
    lines: Int64s
    """`[B]`"""
    num_tokens: Int64s
    """`[B]` with the new ones, as far as they are held."""


class DeviceTexts:
    """A line per request; the host knows which one, and what is in it.

    Args:
        most: maximum number of requests that run; there are as many lines again for those that have ended since the last batch.
            Another one, as after a preemption, loses its line, and is written again when it comes back.
        max_model_len: how many tokens of a text are held.
        device: where they are.
    """

    def __init__(self, most: int, max_model_len: int, device: torch.device) -> None:
        self._size = 2 * most, max_model_len + 1
        self._device = device
        self._lines: dict[str, int] = {}
        self._free = list(range(2 * most))
        """A heap: the first free line is taken."""
        self._texts: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def texts(self) -> torch.Tensor:
        """`[lines, max_model_len + 1]` int32, allocated on first use; the last column is room for padding. Another tensor
        once a batch had more requests than there are lines."""
        if self._texts is None:
            self._texts = torch.zeros(self._size, dtype=torch.int32, device=self._device)
        return self._texts

    def take(self, batch: ProposeBatch) -> Taken:
        """Give each request of a batch a line; returns what is new in it."""
        known = [request_id in self._lines for request_id in batch.request_ids]
        lines = np.array([self._line(name, batch.request_ids) for name in batch.request_ids], np.int64)
        starts, counts = np.array(batch.starts, np.int64), np.array(batch.counts, np.int64)
        tokens = batch.new_token_ids
        if not all(is_known or start == 0 for is_known, start in zip(known, batch.starts, strict=True)):
            whole = [start if is_known else 0 for is_known, start in zip(known, batch.starts, strict=True)]
            tokens = np.concatenate([batch.token_ids(row)[start:] for row, start in enumerate(whole)])
            starts = np.array(whole)
            counts = np.array(batch.num_tokens, np.int64) - starts
        most, before = self._size[1] - 1, np.cumsum(counts) - counts
        places = np.repeat(starts - before, counts) + np.arange(len(tokens))
        is_held = places < most
        slots = np.repeat(lines * self._size[1], counts) + places
        rows = NewRows(tokens[is_held].astype(np.int64), counts.tolist())
        return Taken(rows, slots[is_held], lines, np.minimum(np.array(batch.num_tokens, np.int64), most))

    def forget(self, request_ids: Iterable[str]) -> None:
        """Free the lines of these requests; unknown ids are ignored."""
        for request_id in request_ids:
            line = self._lines.pop(request_id, None)
            if line is not None:
                heappush(self._free, line)

    def _line(self, request_id: str, batch: tuple[str, ...]) -> int:
        line = self._lines.pop(request_id, None)
        if line is None:
            if not self._free:  # those that were in a batch last come last
                self.forget(islice((other for other in self._lines if other not in batch), 1))
            if not self._free:
                self._grow()
            line = heappop(self._free)
        self._lines[request_id] = line
        return line

    def _grow(self) -> None:
        """Double the lines: whoever calls the proposer has more requests than it said."""
        count, width = self._size
        self._size, self._free = (2 * count, width), list(range(count, 2 * count))
        if self._texts is not None:
            self._texts = torch.cat([self._texts, torch.zeros_like(self._texts)])
