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
class _Piece:
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
        self._pieces: dict[str, list[_Piece]] = {}
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
                pieces = self._pieces.setdefault(request_id, [])
                if pieces and pieces[-1].end > start:
                    pieces = self._pieces[request_id] = self._between(request_id, 0, start)
                pieces.append(_Piece(start, count, block, row))
            row += count

    def of(self, spans: Iterable[tuple[str, int, int]], none: Kinds) -> Kinds:
        """Return the states of spans of positions, of (request, start, end), in their order; `none` are empty ones."""
        columns: list[list[torch.Tensor]] = [[kind] for kind in none]
        for request_id, start, end in spans:
            for piece in self._between(request_id, start, end):
                rows = slice(piece.row, piece.row + piece.count)
                for column, kind in zip(columns, piece.block.kinds, strict=True):
                    column.append(kind[rows])
        return tuple(torch.cat(column) for column in columns)

    def keep(self, wanted: dict[str, int]) -> None:
        """End a step: keep copies of states from a position on, by request, and drop all others."""
        for request_id in list(self._pieces):
            if request_id not in wanted:
                del self._pieces[request_id]
                continue
            pieces, first = self._pieces[request_id], wanted[request_id]
            if pieces[0].end <= first:
                pieces = self._pieces[request_id] = [piece for piece in pieces if piece.end > first]
            if not pieces:
                del self._pieces[request_id]
            elif self._newest is not None and pieces[-1].block is self._newest:
                self._newest.kinds = tuple(kind.clone() for kind in self._newest.kinds)
                self._newest = None
        self._newest = None

    def forget(self, request_ids: Sequence[str]) -> None:
        """Drop the states of requests."""
        for request_id in request_ids:
            self._pieces.pop(request_id, None)

    def _between(self, request_id: str, start: int, end: int) -> list[_Piece]:
        found = []
        for piece in self._pieces.get(request_id, ()):
            first, last = max(start, piece.start), min(end, piece.end)
            if first < last:
                found.append(_Piece(first, last - first, piece.block, piece.row + first - piece.start))
        return found
