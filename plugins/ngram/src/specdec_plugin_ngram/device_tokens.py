"""The tokens of all requests, on the device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

WIDTH_STEP = 256
"""Widths of the views are rounded up to a multiple of this, to limit the number of shapes."""


class DeviceTokens:
    """A `[num_lines, max_model_len]` int32 buffer with one line per request; the host maps requests to lines.

    The host knows only an upper bound of each length: what it has written so far. The buffer grows if there are
    more requests than lines (preempted requests keep theirs).
    """

    def __init__(self, num_lines: int, max_model_len: int, device: torch.device) -> None:
        self._max_model_len = max_model_len
        self._device = device
        self._lines: dict[str, int] = {}
        self._free = list(range(num_lines - 1, -1, -1))
        self._bounds = [0] * num_lines
        self._buffer: torch.Tensor | None = None
        self._last_ids: Sequence[str] = ()
        self._last_index = torch.empty(0, dtype=torch.int64)

    def __len__(self) -> int:
        return len(self._lines)

    def allocate(self) -> torch.Tensor:
        """Return the buffer, allocated on the first call; an extra last column receives the writes of padding."""
        if self._buffer is None:
            self._buffer = torch.zeros(
                (len(self._bounds), self._max_model_len + 1), dtype=torch.int32, device=self._device
            )
        return self._buffer

    def take_in(
        self,
        request_ids: Sequence[str],
        starts: torch.Tensor,
        counts: torch.Tensor,
        new_token_ids: torch.Tensor,
    ) -> torch.Tensor:
        """Write the new tokens and return all tokens of every row.

        Args:
            request_ids: `[B]`; unknown ones are new requests.
            starts: `[B]` int64 on the device: position of the first new token.
            counts: `[B]` int64 on the device: number of new tokens.
            new_token_ids: `[B, W]` int64 on the device; columns from `counts` on are ignored.

        Returns:
            `[B, L]` int32, where L is at least the number of tokens of every row.
        """
        index = self._index_of(request_ids)
        buffer = self.allocate()
        columns = torch.arange(new_token_ids.shape[1], device=self._device)
        targets = torch.where(columns < counts[:, None], starts[:, None] + columns, self._max_model_len)
        targets = targets.clamp(max=self._max_model_len)
        buffer[index[:, None], targets] = new_token_ids.to(torch.int32)
        return buffer[:, : self._widen(request_ids, new_token_ids.shape[1])].index_select(0, index)

    def forget(self, request_ids: Iterable[str]) -> None:
        """Free the lines of these requests; unknown ids are ignored."""
        for request_id in request_ids:
            line = self._lines.pop(request_id, None)
            if line is not None:
                self._bounds[line] = 0
                self._free.append(line)
        self._last_ids = ()

    def _index_of(self, request_ids: Sequence[str]) -> torch.Tensor:
        """Return the lines `[B]` of these requests on the device; copied only if the batch has changed."""
        if request_ids != self._last_ids:
            for request_id in request_ids:
                if request_id not in self._lines:
                    self._lines[request_id] = self._take_line()
            lines = torch.tensor([self._lines[name] for name in request_ids], dtype=torch.int64)
            if self._device.type == "cuda":  # a copy from pageable memory would synchronise with it
                lines = lines.pin_memory()
            self._last_index = lines.to(self._device, non_blocking=True)
            self._last_ids = request_ids
        return self._last_index

    def _take_line(self) -> int:
        if not self._free:
            count = len(self._bounds)
            self._free = list(range(2 * count - 1, count - 1, -1))
            self._bounds += [0] * count
            if self._buffer is not None:
                self._buffer = torch.cat([self._buffer, torch.zeros_like(self._buffer)])
        return self._free.pop()

    def _widen(self, request_ids: Sequence[str], num_new: int) -> int:
        """Add `num_new` to the bounds of these requests and return the largest bound, rounded up."""
        widest = 0
        for request_id in request_ids:
            line = self._lines[request_id]
            self._bounds[line] = min(self._bounds[line] + num_new, self._max_model_len)
            widest = max(widest, self._bounds[line])
        return min(-(-widest // WIDTH_STEP) * WIDTH_STEP, self._max_model_len)
