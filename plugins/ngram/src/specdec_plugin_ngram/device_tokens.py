"""The tokens of all requests, on the device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

import torch

from specdec.runner import sent

WIDTH_STEP = 256
"""Widths of the views are rounded up to a multiple of this, to limit the number of shapes."""


class DeviceTokens:
    """A `[num_lines, max_model_len]` int64 buffer with one line per request; the host maps requests to lines.

    The host knows only an upper bound of each length: what it has written so far. The buffer grows if there are
    more requests than lines (preempted requests keep theirs).
    """

    def __init__(self, num_lines: int, max_model_len: int, device: torch.device) -> None:
        self._max_model_len = max_model_len
        self._device = device
        self._lines: dict[str, int] = {}
        self._free = list(range(num_lines))
        """A heap: the first free line is taken, so that a batch is mostly in order."""
        self._bounds = [0] * num_lines
        self._buffer: torch.Tensor | None = None
        self._last_ids: Sequence[str] = ()
        self._last_index: torch.Tensor | None = None
        """Lines of these requests; None for the first ones in order."""
        self._columns = torch.arange(max_model_len, device=device)

    def __len__(self) -> int:
        return len(self._lines)

    def allocate(self) -> torch.Tensor:
        """Return the buffer, allocated on the first call; an extra last column receives writes behind the context."""
        if self._buffer is None:
            shape = len(self._bounds), self._max_model_len + 1
            self._buffer = torch.zeros(shape, dtype=torch.int64, device=self._device)
        return self._buffer

    @property
    def widths(self) -> list[int]:
        """Widths of what `take_in` returns, of which the others are at most twice the next smaller one."""
        most = self._max_model_len
        doubled = (WIDTH_STEP << power for power in range((most // WIDTH_STEP).bit_length()))
        return [*(width for width in doubled if width < most), most]

    def take_in(
        self,
        request_ids: Sequence[str],
        starts: torch.Tensor,
        new_token_ids: torch.Tensor,
    ) -> torch.Tensor:
        """Write the new tokens and return all tokens of every row.

        Args:
            request_ids: `[B]`; unknown ones are new requests.
            starts: `[B]` int64 on the device: position of the first new token.
            new_token_ids: `[B, W]` int64 on the device; what pads a row is written behind its text.

        Returns:
            `[B, L]` int64, where L is at least the number of tokens of every row.
        """
        index = self._index_of(request_ids)
        buffer = self.allocate()
        targets = starts[:, None] + self._columns[: new_token_ids.shape[1]]
        widest = self._widen(request_ids, new_token_ids.shape[1])
        if widest > self._max_model_len:
            targets.clamp_(max=self._max_model_len)
        width = min(-(-widest // WIDTH_STEP) * WIDTH_STEP, self._max_model_len)
        if index is None:
            buffer = buffer[: len(request_ids)]
            buffer.scatter_(1, targets, new_token_ids)
            return buffer[:, :width]
        buffer[index[:, None], targets] = new_token_ids
        return buffer[:, :width].index_select(0, index)

    def forget(self, request_ids: Iterable[str]) -> None:
        """Free the lines of these requests; unknown ids are ignored."""
        for request_id in request_ids:
            line = self._lines.pop(request_id, None)
            if line is not None:
                self._bounds[line] = 0
                heappush(self._free, line)
        self._last_ids = ()

    def _index_of(self, request_ids: Sequence[str]) -> torch.Tensor | None:
        """Return the lines `[B]` of these requests on the device, copied only if the batch has changed; None if in order."""
        if request_ids != self._last_ids:
            for request_id in request_ids:
                if request_id not in self._lines:
                    self._lines[request_id] = self._take_line()
            lines = [self._lines[name] for name in request_ids]
            is_in_order = lines == list(range(len(lines)))
            self._last_index = None if is_in_order else sent(torch.tensor(lines), self._device)
            self._last_ids = request_ids
        return self._last_index

    def _take_line(self) -> int:
        if not self._free:
            count = len(self._bounds)
            self._free = list(range(count, 2 * count))
            self._bounds += [0] * count
            if self._buffer is not None:
                self._buffer = torch.cat([self._buffer, torch.zeros_like(self._buffer)])
        return heappop(self._free)

    def _widen(self, request_ids: Sequence[str], num_new: int) -> int:
        """Add `num_new` to the bounds of these requests and return the largest bound, which may be beyond the context."""
        widest = 0
        for request_id in request_ids:
            line = self._lines[request_id]
            bound = self._bounds[line] + num_new
            widest = max(widest, bound)
            self._bounds[line] = min(bound, self._max_model_len)
        return widest
