"""The tensors of a recorded draft loop, and what chains and trees have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from specdec.interfaces import VerdictOffsets
from specdec_kernels.cuda.graphs.loop_table import NOWHERE, LoopTable
from specdec_kernels.cuda.graphs.pass_shape import PassShape
from specdec_kernels.cuda.graphs.recorder import Tensors
from specdec_kernels.cuda.graphs.static_pass import StaticPass, copy_in, num_numbers
from specdec_kernels.cuda.graphs.static_start import Combine, GivenStart, NewRowsStart, RunStep, Start
from specdec_kernels.cuda.paged_pass import Int64s, PassNumbers
from specdec_runtime.interfaces import ChainRules, ChainWork, HostRows

Numbered = tuple[HostRows, PassNumbers]
"""A pass on the host, and in the form that the kernels read."""


@dataclass(frozen=True, slots=True)
class ChainShape:
    """The shape of a recorded loop."""

    last: PassShape
    """Shape of its last pass, if it drafts chains."""
    num_steps: int
    is_greedy: bool
    """Whether all rows choose greedily and no noise is needed."""
    rules: ChainRules
    has_cuts: bool = False
    """Whether a row may be cut by top-k, top-p or min-p: where q is kept always, but for greedy rows."""
    first: PassShape | None = None
    """Shape of the pass over new tokens that it begins with; None if it begins with logits."""
    block: PassShape | None = None
    """Shape of the pass over mask tokens, which is then its only one; None if it chooses one token after another."""


class RecordedLoop(ABC):
    """A draft loop whose passes and choices read tensors at fixed addresses. One transfer fills it."""

    shape: ChainShape
    start: Start
    """What it starts from."""
    step: StaticPass
    """The pass of a step, in its place."""
    _numbers: torch.Tensor
    """All that is sent."""

    @property
    def num_bytes(self) -> int:
        """Memory of the largest tensors."""
        return self.step.num_bytes + self.start.num_bytes

    def send(
        self,
        host: HostRows,
        numbers: PassNumbers,
        work: ChainWork,
        first: Numbered | None = None,
        offsets: VerdictOffsets = NOWHERE,
    ) -> None:
        """Send the numbers of a loop.

        Args:
            host: the last pass of chains, or the pass over masks.
            numbers: the same pass in the form that the kernels read.
            work: what to draft, with the rows that are in the cache once the new ones are.
            first: the pass over new tokens, if it begins with one, or the new rows that are written before.
            offsets: where the verdict on this draft will be.
        """
        together = np.concatenate(self._parts((host, numbers), work, first, offsets))
        copy_in(self._numbers[: len(together)], torch.from_numpy(together))

    @abstractmethod
    def _parts(
        self, last: Numbered, work: ChainWork, first: Numbered | None, offsets: VerdictOffsets
    ) -> Sequence[Int64s]:
        """Return the numbers to send; see `send`."""

    @abstractmethod
    def run(self, run_pass: RunStep) -> Tensors:
        """Run the loop.

        Returns:
            four tensors whose first dimension is T: ids of the target; the draft's own probability of each, of width 0 if not
            requested; what else there is of each, of width 0 if nothing; and logits `[T, V]` of the first pass over chosen
            tokens, of width 0 if there is none.
        """


class StaticLoop(RecordedLoop):
    """Chooses tokens in one step after another, each from a pass over those before.

    Args:
        shape: its sizes.
        step: shape of the pass over what was chosen in one step.
        max_context: maximum sequence length, in tokens.
        max_positions: number of positions that the model supports.
        device: where its tensors are.
        features: `[T, F]` of a head, for width and dtype; None for models.
        given: see `NewRowsStart` if `shape.first` is given, else logits `[B, V]`, and for a head the carry.
        combine: see `NewRowsStart`.
        verdicts: where the verdict on its last draft may be, and the most new tokens of a request; None if it is nowhere.
    """

    def __init__(
        self,
        shape: ChainShape,
        step: PassShape,
        max_context: int,
        max_positions: int,
        device: torch.device,
        features: torch.Tensor | None,
        given: Tensors,
        combine: Combine | None,
        verdicts: tuple[torch.Tensor, int] | None = None,
    ) -> None:
        self.shape, self._verdicts = shape, verdicts
        self._max_positions = max_positions
        num_rows = self._num_rows
        table = max(num_rows, shape.last.num_requests), num_rows, shape
        num_more = LoopTable.num_numbers(*table)
        sizes = [0 if shape.first is None else num_numbers(shape.first, 0), num_numbers(step, num_more)]
        self._numbers = torch.empty(sum(sizes), dtype=torch.int64, device=device)
        before, own = self._numbers.split(sizes)
        self._first: StaticPass | None = None
        if shape.first is None:
            self.start = GivenStart(num_rows, given)
        else:
            self._first = StaticPass(shape.first, max_context, device, None, memory=before)
            self.start = NewRowsStart(self._first, num_rows, given, combine)
        self.step = StaticPass(step, max_context, device, features, num_more, memory=own)
        self.table = LoopTable(self.step.more, *table)
        self.choice = self.table.choice

    @property
    def _num_rows(self) -> int:
        """T."""
        return self.shape.last.num_rows

    def _parts(
        self, last: Numbered, work: ChainWork, first: Numbered | None, offsets: VerdictOffsets
    ) -> Sequence[Int64s]:
        """See `RecordedLoop._parts`."""
        before = [] if first is None or self._first is None else [self._first.packed(*first)]
        return [*before, self._packed(*last, self.table.packed(work, offsets))]

    def _packed(self, host: HostRows, numbers: PassNumbers, table: Int64s) -> Int64s:
        """Return the numbers of the pass of a step and the `table` of rows."""
        return self.step.packed(host, numbers, table)

    def _take_verdict(self) -> None:
        """Advance the numbers by the verdict on the last draft, unless others were sent; the first operation of a loop."""
        if self._verdicts is None or self._first is None:
            return
        self.table.advance(self._first, *self._verdicts)
