"""What the host sends of each request of a recorded draft loop."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch

from specdec.interfaces import VerdictOffsets
from specdec_kernels.cuda.graphs.static_choice import StaticChoice
from specdec_kernels.cuda.graphs.static_pass import StaticPass
from specdec_kernels.cuda.paged_pass import Int64s
from specdec_kernels.triton.advance_rows import NO_MASKS, LoopRows, Masks, advance_rows
from specdec_kernels.triton.noise import NoiseKeys
from specdec_runtime.interfaces import ChainRules, ChainWork

_NUM_COLUMNS = 7
"""Numbers of a request: cached rows, first slot, three keys of the noise, how deep its draft is, which is 0 of padding, and the
tokens at which its text ends."""
NOWHERE = VerdictOffsets(0, 0, 0)
NO_END = 2**40
"""Stands for an end that is not known."""
_NUM_PLACES = 4
"""Size of `LoopRows.verdict`: a flag, the offsets of counts and tokens, and the number of columns."""


@dataclass(frozen=True, slots=True)
class TokenChoice:
    """How the tokens of a loop are chosen."""

    num_steps: int
    is_greedy: bool
    """Whether all rows choose greedily and no noise is needed."""
    has_cuts: bool
    """Whether a row may be cut by top-k, top-p or min-p: where q is kept always, but for greedy rows."""
    rules: ChainRules


class LoopTable:
    """Numbers `[size]` of requests, and how the first `num_rows` of them choose, at fixed addresses.

    Args:
        numbers: int64, their place, with `num_numbers` numbers.
        size: number of requests.
        num_rows: how many of these choose tokens.
        way: how they do.
    """

    def __init__(self, numbers: torch.Tensor, size: int, num_rows: int, way: TokenChoice) -> None:
        sizes = _sizes(size, num_rows, way)
        self._num_more = sizes[-1]
        table, settings, self.verdict, _ = numbers.split(sizes)
        self.cached, self.first_slots, self.seeds, self.samples, *others = table.view(_NUM_COLUMNS, size)
        self.positions, self.depths, self.ends = others
        keys = NoiseKeys(self.seeds, self.positions, self.samples)
        self.choice = StaticChoice(way.rules, keys, settings, is_greedy=way.is_greedy, has_cuts=way.has_cuts)

    @staticmethod
    def num_numbers(size: int, num_rows: int, way: TokenChoice) -> int:
        """Return how many numbers a table has."""
        return sum(_sizes(size, num_rows, way))

    def packed(self, work: ChainWork, offsets: VerdictOffsets = NOWHERE) -> Int64s:
        """Return the numbers to send for a draft, on which the verdict will be at `offsets`."""
        count, keys = len(work.num_cached), work.keys
        table = np.zeros((_NUM_COLUMNS, len(self.cached)), np.int64)
        table[0, :count], table[1, :count] = work.num_cached, work.first_slots
        table[2:5, :count] = keys.seeds, keys.samples, keys.positions
        table[5, :count], table[6, :count] = work.depths or work.num_steps, work.ends or NO_END
        sent = np.array([0, *offsets[: _NUM_PLACES - 1]])
        parts = table.reshape(-1), self.choice.numbers(work), sent
        return np.concatenate((*parts, np.zeros(self._num_more, np.int64)))

    def advance(self, rows: StaticPass, memory: torch.Tensor, most_new: int, masks: Masks = NO_MASKS) -> None:
        """Advance these numbers, and those of a pass over new rows, by the verdict on the last draft, unless sent others."""
        step = rows.rows
        numbers = (
            rows.ids,
            rows.batch.positions,
            step.slots,
            step.query_starts,
            step.context_lens,
            rows.logits_rows,
        )
        self.advance_rows(numbers, memory, most_new, masks)

    def advance_rows(
        self, rows: Sequence[torch.Tensor], memory: torch.Tensor, most_new: int, masks: Masks = NO_MASKS
    ) -> None:
        """The same with the first six parts of `LoopRows`."""
        own = self.cached, self.positions, self.first_slots, self.depths, self.ends, self.verdict
        with torch.cuda.device(memory.device) if memory.is_cuda else nullcontext():
            advance_rows(LoopRows._make([*rows, *own]), memory, most_new, masks=masks)


def _sizes(size: int, num_rows: int, way: TokenChoice) -> tuple[int, int, int, int]:
    """Return the sizes of the parts, the last of which makes their sum even, as places of parts are."""
    sizes = _NUM_COLUMNS * size, 0 if way.is_greedy else 2 * num_rows, _NUM_PLACES
    return *sizes, sum(sizes) % 2
