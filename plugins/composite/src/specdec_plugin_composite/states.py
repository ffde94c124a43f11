"""Hidden states of tokens that some members were not told yet, kept once for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from specdec.interfaces import ProposeBatch

Kinds = tuple[torch.Tensor, ...]
"""The final states `[T, H]`, those of each auxiliary layer, and `[T]` whether there is a state."""


@dataclass
class _Block:
    """The states of one step."""

    kinds: Kinds


@dataclass(frozen=True)
class _StateSpan:
    """The states of consecutive tokens of one request, from position `start` on: rows of a block."""

    start: int
    count: int
    block: _Block
    row: int

    @property
    def end(self) -> int:
        return self.start + self.count


class States:
    """States by request, each kept until no member wants it."""

    def __init__(self) -> None:
        self._spans: dict[str, list[_StateSpan]] = {}
        self._newest: _Block | None = None
        """That of this step, whose memory is the batch's and is valid during the call only."""

    def add(self, batch: ProposeBatch) -> None:
        """Take in the states of a step; those from its first position on are replaced."""
        assert batch.hidden_states is not None
        assert batch.has_hidden is not None
        self._newest = block = _Block((batch.hidden_states, *batch.aux_hidden_states, batch.has_hidden))
        row = 0
        for request_id, start, count in zip(batch.request_ids, batch.starts, batch.counts, strict=True):
            if count:
                spans = self._spans.setdefault(request_id, [])
                if spans and spans[-1].end > start:
                    spans = self._spans[request_id] = self._between(request_id, 0, start)
                spans.append(_StateSpan(start, count, block, row))
            row += count

    def of(self, spans: Iterable[tuple[str, int, int]], none: Kinds) -> Kinds:
        """Return the states of spans of positions, of (request, start, end), in their order; `none` are empty ones."""
        columns: list[list[torch.Tensor]] = [[kind] for kind in none]
        for request_id, start, end in spans:
            for span in self._between(request_id, start, end):
                rows = slice(span.row, span.row + span.count)
                for column, kind in zip(columns, span.block.kinds, strict=True):
                    column.append(kind[rows])
        return tuple(torch.cat(column) for column in columns)

    def keep(self, wanted: dict[str, int]) -> None:
        """End a step: keep copies of states from a position on, by request, and drop all others."""
        for request_id in list(self._spans):
            if request_id not in wanted:
                del self._spans[request_id]
                continue
            spans, first = self._spans[request_id], wanted[request_id]
            if spans[0].end <= first:
                spans = self._spans[request_id] = [span for span in spans if span.end > first]
            if not spans:
                del self._spans[request_id]
            elif self._newest is not None and spans[-1].block is self._newest:
                self._newest.kinds = tuple(kind.clone() for kind in self._newest.kinds)
                self._newest = None
        self._newest = None

    def forget(self, request_ids: Sequence[str]) -> None:
        """Drop the states of requests."""
        for request_id in request_ids:
            self._spans.pop(request_id, None)

    def _between(self, request_id: str, start: int, end: int) -> list[_StateSpan]:
        found = []
        for span in self._spans.get(request_id, ()):
            first, last = max(start, span.start), min(end, span.end)
            if first < last:
                found.append(_StateSpan(first, last - first, span.block, span.row + first - span.start))
        return found
