"""The tensors of a recorded lookup in texts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import NamedTuple

import numpy as np
import torch

from specdec.interfaces import ChainRules, ChainWork, NewRows, Places, RequestTable
from specdec_kernels.cuda.graphs.loop_table import NOWHERE, LoopTable
from specdec_kernels.cuda.graphs.recorder import Tensors
from specdec_kernels.cuda.graphs.static_pass import copy_in
from specdec_kernels.cuda.paged_pass import Int64s

LookUp = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Returns drafts `[R, K]` of texts, from their lines `[R]` and numbers of tokens `[R]`, which are 0 in rows of padding."""
RULES = ChainRules(1)
"""Nothing is chosen from logits."""


class TextsShape(NamedTuple):
    """The shape of a recorded lookup."""

    num_rows: int
    num_steps: int
    is_greedy: bool = True
    has_cuts: bool = False
    rules: ChainRules = RULES


class _NoStates:
    """The start of what reads tokens alone."""

    def follow(self, memory: RequestTable, places: Places, size: int) -> bool:
        """See `Start.follow`."""
        return True


class StaticTexts:
    """Writes new tokens into texts and looks up what may follow, by numbers at fixed addresses.

    Args:
        shape: its sizes.
        texts: `[lines, L + 1]` int32; the last column of the last line takes what is written for padding.
        look_up: finds drafts in it.
        memory: where the verdict on its last draft may be.
    """

    def __init__(self, shape: TextsShape, texts: torch.Tensor, look_up: LookUp, memory: RequestTable) -> None:
        self.shape, self._look_up, self._memory = shape, look_up, memory
        self._flat = texts.view(-1)
        size = shape.num_rows
        num_new, even = size * (shape.num_steps + 1), size + size % 2
        num_new += num_new % 2
        sizes = num_new, num_new, even, LoopTable.num_numbers(size, size, shape)
        self._numbers = torch.zeros(sum(sizes), dtype=torch.int64, device=texts.device)
        self._token_ids, self._slots, lines, table = self._numbers.split(sizes)
        self._lines = lines[:size]
        self._table = LoopTable(table, size, size, shape)
        self._unread = self._numbers.new_zeros(2, num_new), self._numbers.new_zeros(2, even + 2)
        """Numbers that a pass over new tokens would have."""
        self.start = _NoStates()

    @property
    def max_new_rows(self) -> int:
        """Maximum number of new tokens, of all requests."""
        return len(self._token_ids)

    @property
    def num_bytes(self) -> int:
        """Memory of its own tensors."""
        return self._numbers.nbytes

    def send(
        self, rows: NewRows, slots: Int64s, lines: Int64s, work: ChainWork, places: Places = NOWHERE
    ) -> None:
        """Send new tokens, their `slots` in the texts, and the `lines` of requests, by one transfer."""
        num_new, num_lines = len(self._token_ids), len(self._lines) + len(self._lines) % 2
        numbers = np.zeros(2 * num_new + num_lines, np.int64)
        new, table = numbers[: 2 * num_new].reshape(2, -1), self._table.packed(work, places)
        new[1] = -1
        new[:, : len(slots)] = rows.token_ids, slots
        numbers[2 * num_new :][: len(lines)] = lines
        copy_in(self._numbers, torch.from_numpy(np.concatenate((numbers, table))))

    def run(self) -> Tensors:
        """Take the verdict, if its tokens were not sent, and look up drafts `[R, K]`."""
        size = self.shape.num_rows
        (positions, last_rows), (starts, lengths) = self._unread
        rows = self._token_ids, positions, self._slots, starts[: size + 1], lengths[:size], last_rows
        self._table.advance_rows(rows, self._memory.numbers, self.shape.num_steps + 1)
        self._flat.index_put_((self._slots,), self._token_ids.to(self._flat.dtype))
        device = self._flat.device
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            return (self._look_up(self._lines, self._table.positions),)
