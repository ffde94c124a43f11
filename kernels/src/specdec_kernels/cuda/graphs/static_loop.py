"""The tensors of a recorded draft loop, and how chains are drafted by it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
import torch

from specdec.interfaces import VerdictOffsets
from specdec_kernels.cuda.graphs.loop_table import NOWHERE, LoopTable, TokenChoice
from specdec_kernels.cuda.graphs.pass_shape import PassShape
from specdec_kernels.cuda.graphs.recorder import Recording, Tensors
from specdec_kernels.cuda.graphs.static_choice import ChosenTokens
from specdec_kernels.cuda.graphs.static_pass import StaticPass, copy_in, num_numbers
from specdec_kernels.cuda.graphs.static_start import (
    BlockStart,
    GivenStart,
    NewRowsStart,
    Reads,
    RunStep,
    StatesStart,
)
from specdec_kernels.cuda.paged_pass import Int64s, PassNumbers
from specdec_kernels.triton.advance_rows import Masks
from specdec_runtime.interfaces import ChainRules, ChainWork, HostRows

Numbered = tuple[HostRows, PassNumbers]
"""A pass on the host, and in the form that the kernels read."""


@dataclass(frozen=True, slots=True)
class ChainShape(TokenChoice):
    """The shape of a recorded loop."""

    last: PassShape
    """Shape of its last pass, if it drafts chains; of a request each otherwise."""
    first: PassShape | None = None
    """Shape of the pass over new tokens that it begins with; None if it begins with logits."""
    block: PassShape | None = None
    """Shape of the pass over mask tokens, which is then its only one; None if it chooses one token after another. Its first
    rows are new tokens, unless these are written before, by `first`."""

    @property
    def step(self) -> PassShape:
        """Shape of the pass over what was chosen in one step, or over masks."""
        if self.block is not None or self.rules.width == 1:
            return self.block or self.last
        count = self.last.num_rows * self.rules.width
        return PassShape(count, count, 1, self.last.max_context_len)


class RecordedLoop(ABC):
    """A draft loop whose passes and choices read tensors at fixed addresses. One transfer fills it.

    Args:
        shape: its sizes.
        max_context: maximum sequence length, in tokens.
        max_positions: number of positions that the model supports.
        device: where its tensors are.
        features: `[T, F]` of a head, for width and dtype; None for models.
        given: see `NewRowsStart` if it begins with a pass over new tokens, else logits `[B, V]`, and for a head the carry.
        reads: how a head reads the target's states.
        verdicts: where the verdict on its last draft may be, and the most new tokens of a request; None if it is nowhere.
    """

    recording: Recording
    """Once there is one."""

    def __init__(
        self,
        shape: ChainShape,
        max_context: int,
        max_positions: int,
        device: torch.device,
        features: torch.Tensor | None,
        given: Tensors,
        reads: Reads,
        verdicts: tuple[torch.Tensor, int] | None = None,
    ) -> None:
        self.shape, self._max_positions, self._verdicts = shape, max_positions, verdicts
        self._num_rows = num_rows = shape.last.num_rows
        size, is_block = max(num_rows, shape.last.num_requests), shape.block is not None
        # Before a block the new rows are advanced by a table of their own, which chooses nothing.
        only = replace(shape, is_greedy=True, has_cuts=False)
        more = [LoopTable.num_numbers(size, num_rows, way) for way in (only, shape)]
        more[0] *= is_block
        sizes = [0 if shape.first is None else num_numbers(shape.first, more[0])]
        sizes.append(num_numbers(shape.step, more[1]))
        self._numbers = torch.empty(sum(sizes), dtype=torch.int64, device=device)
        """All that is sent."""
        before, own = self._numbers.split(sizes)
        self._first: StaticPass | None = None
        self._first_table: LoopTable | None = None
        if shape.first is not None:
            self._first = StaticPass(shape.first, max_context, device, None, more[0], memory=before)
            self._first_table = LoopTable(self._first.more, size, num_rows, only) if is_block else None
        self.step = StaticPass(shape.step, max_context, device, features, more[1], memory=own)
        """The pass of a step, in its place."""
        self.table = LoopTable(self.step.more, size, num_rows, shape)
        self.choice = self.table.choice
        self.start: StatesStart | GivenStart
        """What it starts from."""
        if is_block:
            self.start = BlockStart(self.step, self._first, given, reads)
        elif self._first is None:
            self.start = GivenStart(num_rows, given)
        else:
            self.start = NewRowsStart(self._first, num_rows, given, reads.combine)

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
        parts = list[Int64s]()
        if first is not None and self._first is not None:
            table = None if self._first_table is None else self._first_table.packed(work, offsets)
            parts.append(self._first.packed(*first, table))
            if self._first_table is not None:  # each last token has a row behind those of the text
                work = replace(work, num_cached=[count + 1 for count in work.num_cached])
        parts.append(self._packed(host, numbers, self.table.packed(work, offsets)))
        together = np.concatenate(parts)
        copy_in(self._numbers[: len(together)], torch.from_numpy(together))

    @abstractmethod
    def run(self, run_pass: RunStep) -> Tensors:
        """Run the loop.

        Returns:
            four tensors whose first dimension is T: ids of the target; the draft's own probability of each, of width 0 if not
            requested; what else there is of each, of width 0 if nothing; and logits `[T, V]` of the first pass over chosen
            tokens, of width 0 if there is none.
        """

    def _packed(self, host: HostRows, numbers: PassNumbers, table: Int64s) -> Int64s:
        """Return the numbers of the pass of a step and the `table` of rows."""
        return self.step.packed(host, numbers, table)

    def _take_verdict(self) -> None:
        """Advance the numbers by the verdict on the last draft, unless others were sent; the first operation of a loop."""
        if self._verdicts is not None and self._first is not None:
            self.table.advance(self._first, *self._verdicts)


class StaticChain(RecordedLoop):
    """Chooses one token per request in each step, and runs it to choose the next."""

    def run(self, run_pass: RunStep) -> Tensors:
        """See `RecordedLoop.run` and `ChosenTokens.outputs`."""
        num_steps, chosen = self.shape.num_steps, ChosenTokens(self.choice)
        self._take_verdict()
        self.step.make_inputs()
        logits, carry = self.start.run(run_pass)
        first = logits[:, :0]
        for step in range(num_steps):
            token_ids = chosen.add(logits)
            if step + 1 < num_steps:
                self._advance(token_ids, step, carry)
                logits, *carried = run_pass(self.step, self.step.features)
                carry = None if carry is None else carried[0]
                first = logits if step == 0 else first
        return (*chosen.outputs(), first.clone())

    def _advance(self, token_ids: torch.Tensor, step: int, carry: torch.Tensor | None) -> None:
        """Write the inputs of the pass over the tokens just chosen.

        All requests run as many steps as the longest chain needs. Positions are clamped to the last one that the model
        supports; tokens that a request chooses beyond its limit are dropped, and beyond `ChainWork.num_steps` they are written
        nowhere.
        """
        batch, rows = self.step.batch, self.step.rows
        is_real = self.table.depths > 0
        # A chain that is complete stays at its last place, and its rows are written nowhere.
        ahead = (self.table.depths - 2).clamp(min=0, max=step)
        place = torch.where(is_real, self.table.cached + ahead, 0)
        count = len(batch.token_ids)
        batch.token_ids.copy_(torch.where(is_real[:count], token_ids, 0))
        batch.positions.copy_(place[:count].clamp_max(self._max_positions - 1))
        rows.slots.copy_(
            torch.where(self.table.depths > step + 1, self.table.first_slots + place, -1)[:count]
        )
        rows.context_lens.copy_((place + is_real)[: len(rows.context_lens)])
        if carry is not None:
            assert self.step.features is not None
            self.step.features.copy_(carry)


class StaticBlock(RecordedLoop):
    """Runs new tokens with masks behind them, and chooses all tokens of a draft from that pass.

    With a context the pass has last tokens and masks only, and the new rows are written before (`ContextRows`).
    """

    def run(self, run_pass: RunStep) -> Tensors:
        """See `RecordedLoop.run` and `ChosenTokens.outputs`; there is no pass over chosen tokens."""
        self._take_verdict()
        rules, num_steps = self.shape.rules, self.shape.num_steps
        depths = self.table.depths[: self.shape.last.num_rows]
        last = self.step.logits_rows[: len(depths), None] + rules.skips_last
        ahead = torch.arange(num_steps, device=last.device)
        behind = torch.minimum(ahead, (depths[:, None] - 1).clamp_min(0))
        rows = torch.where(depths[:, None] > 0, last + behind, 0)
        self.step.batch.logits_rows = rows.flatten()
        logits = self.start.run(run_pass)[0].view(len(depths), num_steps, -1)
        chosen = ChosenTokens(self.table.choice)
        for step in range(num_steps):
            chosen.add(logits[:, step])
        outputs = chosen.outputs()
        return (*outputs, outputs[1][:, :0])

    def _take_verdict(self) -> None:
        """See `RecordedLoop._take_verdict`; the text's new rows, if they are written before, are advanced by themselves."""
        if self._verdicts is None:
            return
        memory, most_new = self._verdicts
        if self._first is not None and self._first_table is not None:
            self._first_table.advance(self._first, memory, most_new)
            most_new = 1
        self.table.advance(self.step, memory, most_new, masks_of(self.shape.rules, self.shape.num_steps))


def masks_of(rules: ChainRules, num_steps: int) -> Masks:
    """Return the masks behind the last token of a request, whose draft has at most `num_steps` tokens."""
    assert rules.mask_id is not None
    num_more = 0 if rules.skips_last else -1
    return Masks(rules.mask_id, num_more, num_steps + num_more)
