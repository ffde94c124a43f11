"""What sampling parameters change in single logits: collected for all requests of a step, and made together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces.row_operations import Occurrences
from specdec.interfaces.sent import Transfer
from specdec.noise import row_operations

if TYPE_CHECKING:
    from specdec.interfaces.row_block import RowBlock
    from specdec.logits.rules.bans import AllowedIdsRule
    from specdec.logits.rules.penalties import PenaltyRule

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
_HIGHEST = torch.finfo(torch.float32).max


class Points(NamedTuple):
    """Places in the logits, and what happens there."""

    rows: Int64s
    """`[n]` rows of the request."""
    ids: Int64s
    """`[n]` token ids."""
    amounts: Floats = np.empty((0, 0), np.float32)
    """`[m, n]`."""

    def of_rows(self, is_row: npt.NDArray[np.bool_]) -> Points:
        """Return the points in rows that `is_row [num_rows]` holds for."""
        kept = is_row[self.rows]
        return Points(
            self.rows[kept], self.ids[kept], self.amounts[:, kept] if len(self.amounts) else self.amounts
        )


class Edits:
    """The changes to one request's rows, in the order in which they are made; points of one kind, but bans, are different.

    Args:
        num_rows: number of its rows.
    """

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
        self.rows = np.arange(num_rows)
        """The rows that change, but for `forced`; in these only `allowed` stay."""
        self.allowed: AllowedIdsRule | None = None
        self.bans: list[Points] = []
        self.biases: list[Points] = []
        """With a number to add."""
        self.penalties: list[tuple[PenaltyRule, RowBlock]] = []
        self.forced = Points(np.empty(0, np.int64), np.empty(0, np.int64))
        """The only id of some rows, in which nothing else changes."""

    def force(self, rows: Int64s, ids: Int64s) -> None:
        """Leave one id alone in some rows `[n]`, whatever else was to change there."""
        self.forced = Points(rows, ids)
        self._keep(np.setdiff1d(self.rows, rows))

    def _keep(self, rows: Int64s) -> None:
        """Change these rows alone."""
        is_left = np.zeros(self.num_rows, bool)
        is_left[rows] = True
        for kind in (self.bans, self.biases):
            kind[:] = [points.of_rows(is_left) for points in kind]
        self.rows = rows

    def drop_dead_rows(self, vocab_size: int) -> list[int]:
        """Return the rows in which nothing may be chosen, and leave those alone."""
        allowed = vocab_size if self.allowed is None else len(self.allowed.ids)
        if sum(len(points.ids) for points in self.bans) < allowed:
            return []
        possible = np.arange(vocab_size) if self.allowed is None else self.allowed.ids
        dead = []
        for row in self.rows.tolist():
            banned = [token_id for points in self.bans for token_id in points.ids[points.rows == row]]
            if np.isin(possible, banned).all():
                dead.append(row)
        self._keep(np.setdiff1d(self.rows, dead))
        return dead


class StepEdits:
    """The changes of all requests of a step, whatever their number in a few operations and one transfer.

    Args:
        all_edits: those of each request, with its first row.
        vocab_size: V.
        device: of the logits.
        transfer: to send them together with a pass; None to send them by themselves.
    """

    def __init__(
        self,
        all_edits: Sequence[tuple[int, Edits]],
        vocab_size: int,
        device: torch.device,
        transfer: Transfer | None = None,
    ) -> None:
        self._lists = lists = [(first, edits) for first, edits in all_edits if edits.allowed is not None]
        self._operations = operations = row_operations(device)
        counted = [(first, edits.rows, *each) for first, edits in all_edits for each in edits.penalties]
        self._text, penalties = list[tuple[int, Int64s, Occurrences]](), list[tuple[int, Points]]()
        if operations.penalises:
            self._text = [(first, rows, rule.occurrences(block)) for first, rows, rule, block in counted]
        else:
            penalties = [(first, rule.points(block.read(), rows)) for first, rows, rule, block in counted]
        kinds = [
            _joined(points, vocab_size)
            for points in (
                [(first, points) for first, edits in all_edits for points in edits.bans],
                [(first, points) for first, edits in all_edits for points in edits.biases],
                penalties,
            )
        ]
        rows = np.concatenate([first + edits.rows for first, edits in lists] or [np.empty(0, np.int64)])
        which = np.repeat(np.arange(len(lists)), [len(edits.rows) for _, edits in lists])
        forced = _joined([(first, edits.forced) for first, edits in all_edits], vocab_size)[0]
        arrays: list[npt.NDArray[Any]] = [rows, which, *chain.from_iterable(kinds), forced]
        self._transfer = (transfer or Transfer()) if any(len(array) for array in arrays) else None
        if self._transfer is not None:
            self._transfer.add("edits", arrays)
        if self._text and transfer is not None:
            operations.send_with(transfer, text=self._text)

    def make(self, logits: torch.Tensor) -> torch.Tensor:
        """Return `logits [R, V]`, float32, with the changes; with `is_in_place` they are contiguous, and written to."""
        if self._transfer is not None:
            _make(logits, self._lists, self._transfer.on(logits.device, "edits"))
        return self._operations.penalise(logits, self._text) if self._text else logits

    @property
    def is_in_place(self) -> bool:
        """Whether `make` writes to the logits."""
        return self._transfer is not None


def _make(logits: torch.Tensor, lists: Sequence[tuple[int, Edits]], given: Sequence[torch.Tensor]) -> None:
    """Make the changes of all requests; `lists` are those in which only some ids are allowed."""
    rows_there, which_there, bans, _, indices, biases, punished, amounts, forced = given
    flat = logits.view(-1)
    if len(rows_there):
        forbidden = torch.stack([e.allowed.is_forbidden(logits) for _, e in lists if e.allowed is not None])
        logits[rows_there] = logits[rows_there].masked_fill(forbidden[which_there], -torch.inf)
    if len(bans):
        flat.index_fill_(0, bans, -torch.inf)
    if len(indices):
        flat.index_add_(0, indices, biases[0])
    if len(punished):
        values, (ratios, counted, present) = flat[punished], amounts
        values = torch.where(values > 0, values / ratios, values * ratios) - counted - present
        flat.index_copy_(0, punished, values.clamp_max_(_HIGHEST))
    if len(forced):
        logits.index_fill_(0, forced // logits.shape[1], -torch.inf)
        flat.index_fill_(0, forced, 0.0)


def _joined(
    points: Iterable[tuple[int, Points]], vocab_size: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return places in flat logits, and what happens there, of points of requests whose first row is given."""
    listed = [(first, each) for first, each in points if len(each.ids)]
    if not listed:
        return np.empty(0, np.int64), np.empty((0, 0), np.float32)
    indices = [(first + each.rows) * vocab_size + each.ids for first, each in listed]
    return np.concatenate(indices), np.concatenate([each.amounts for _, each in listed], 1)
