"""Which line of the request table each running request has, and what the host knows of it."""

from __future__ import annotations

from collections.abc import Sequence as Ids
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from specdec.interfaces.request_table import RequestTable

if TYPE_CHECKING:
    from specdec.engine.sequence import Sequence
    from specdec.engine.step import Row


class RequestLines:
    """Gives running requests their lines, and sends what the table lacks: a text when it starts, and then only what no
    verification has appended.

    Args:
        table: the table.
        is_host_filled: whether a host gives its requests their lines (`Sequence.line`) and fills these itself.
    """

    def __init__(self, table: RequestTable, *, is_host_filled: bool = False) -> None:
        self.table = table
        self._is_host_filled = is_host_filled
        self._holders: list[Sequence] = []
        self._free = list(range(len(table.num_tokens)))
        """A heap: the first free line is taken."""

    def place(self, running: Ids[Sequence]) -> None:
        """Give each of the running samples a line that ends with what the host has committed.

        No verdict may be on its way for those whose line the host believes to end elsewhere.
        """
        if self._is_host_filled:
            return
        if any(sequence.line < 0 for sequence in running) or len(self._holders) != len(running):
            self._exchange(running)
        late = [sequence for sequence in running if sequence.num_in_line != sequence.num_tokens]
        if late:
            starts = [min(sequence.num_in_line, sequence.num_tokens) for sequence in late]
            texts = [sequence.token_ids[start:] for sequence, start in zip(late, starts, strict=True)]
            self.table.write([sequence.line for sequence in late], starts, texts)
            for sequence in late:
                sequence.num_in_line = sequence.num_tokens

    def take_verdict(self, rows: Ids[Row], num_accepted: Ids[int]) -> None:
        """Note that the tokens of a verdict were appended, before they are committed; `num_accepted [B]` are of these rows."""
        for row, count in zip(rows, num_accepted, strict=True):
            # What a line has that was appended for a row which has left its step is not known: it is written anew.
            row.sequence.num_in_line = row.sequence.num_in_line + count + 1 if row.chunk else 0

    def invalidate(self) -> None:
        """Write all lines anew when they are next placed: a step failed, and what it appended is not known."""
        for sequence in self._holders:
            sequence.num_in_line = 0

    def _exchange(self, running: Ids[Sequence]) -> None:
        """Free the lines of samples that no longer run; a step that is launched already appends to them before others write."""
        kept = set(running)
        for sequence in self._holders:
            if sequence not in kept:
                heappush(self._free, sequence.line)
                sequence.line, sequence.num_in_line = -1, 0
        started = [sequence for sequence in running if sequence.line < 0]
        while len(self._free) < len(started):
            self._grow()
        for sequence in started:
            sequence.line, sequence.num_in_line = heappop(self._free), 0
        self._holders = [*running]

    def _grow(self) -> None:
        """Take a table of twice as many lines: a host runs more requests than it said. All of them are written again."""
        num_lines, width = self.table.token_ids.shape
        self.table = RequestTable.on(self.table.token_ids.device, 2 * num_lines, width - 1)
        self._free += range(num_lines, 2 * num_lines)
        heapify(self._free)
        for sequence in self._holders:
            sequence.num_in_line = 0
