"""The recorded draft loop of chains that one pass over mask tokens guesses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from specdec.interfaces import VerdictOffsets
from specdec_kernels.cuda.graphs.loop_table import LoopTable
from specdec_kernels.cuda.graphs.recorder import Tensors
from specdec_kernels.cuda.graphs.static_choice import ChosenTokens
from specdec_kernels.cuda.graphs.static_loop import ChainShape, Numbered, RecordedLoop
from specdec_kernels.cuda.graphs.static_pass import StaticPass, num_numbers
from specdec_kernels.cuda.graphs.static_start import BlockStart, Reads, RunStep
from specdec_kernels.cuda.paged_pass import Int64s
from specdec_kernels.triton.advance_rows import Masks
from specdec_runtime.interfaces import ChainRules, ChainWork


class StaticBlock(RecordedLoop):
    """Runs new tokens with masks behind them, and chooses all tokens of a draft from that pass; see `RecordedLoop`.

    With a context the pass has last tokens and masks only, and the new rows are written before (`ContextRows`).

    Args:
        shape: its sizes, `block` too; `first` with a context only.
        max_context: maximum sequence length, in tokens.
        device: where its tensors are.
        features: `[T, F]` of a head, for width and dtype; None for models.
        given: see `NewRowsStart`.
        reads: how these are read.
        verdicts: see `StaticLoop`.
    """

    def __init__(
        self,
        shape: ChainShape,
        max_context: int,
        device: torch.device,
        features: torch.Tensor | None,
        given: Tensors,
        reads: Reads,
        verdicts: tuple[torch.Tensor, int] | None = None,
    ) -> None:
        assert shape.block is not None
        self.shape, self._verdicts = shape, verdicts
        size = shape.last.num_rows
        greedy = replace(shape, is_greedy=True, has_cuts=False)
        more = [LoopTable.num_numbers(size, size, way) for way in (greedy, shape)]
        sizes = [0 if shape.first is None else num_numbers(shape.first, more[0])]
        sizes.append(num_numbers(shape.block, more[1]))
        self._numbers = torch.empty(sum(sizes), dtype=torch.int64, device=device)
        before, own = self._numbers.split(sizes)
        self._new: tuple[StaticPass, LoopTable] | None = None
        if shape.first is not None:
            new = StaticPass(shape.first, max_context, device, None, more[0], memory=before)
            self._new = new, LoopTable(new.more, size, size, greedy)
        self.step = StaticPass(shape.block, max_context, device, features, more[1], memory=own)
        self.table = LoopTable(self.step.more, size, size, shape)
        self.start = BlockStart(self.step, self._new[0] if self._new else None, given, reads)

    def _parts(
        self, last: Numbered, work: ChainWork, first: Numbered | None, offsets: VerdictOffsets
    ) -> Sequence[Int64s]:
        """See `RecordedLoop._parts`; with a context each last token has a row behind those of the text."""
        before = []
        if first is not None and self._new is not None:
            new, table = self._new
            before.append(new.packed(*first, table.packed(work, offsets)))
            work = replace(work, num_cached=[count + 1 for count in work.num_cached])
        return [*before, self.step.packed(*last, self.table.packed(work, offsets))]

    def run(self, run_pass: RunStep) -> Tensors:
        """See `RecordedLoop.run` and `ChosenTokens.outputs`; there is no pass over chosen tokens."""
        self._take_verdict()
        rules, num_steps, depths = self.shape.rules, self.shape.num_steps, self.table.depths
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
        """Advance the numbers by the verdict on the last draft, unless others were sent; the first operation of a loop."""
        if self._verdicts is None:
            return
        (memory, most_new), rules, size = self._verdicts, self.shape.rules, self.shape.num_steps
        masks = masks_of(rules, size)
        if self._new is not None:
            new, table = self._new
            # The text's new rows are written by a pass of their own; the block has one last token of each request.
            table.advance(new, memory, most_new)
            most_new = 1
        self.table.advance(self.step, memory, most_new, masks)


def masks_of(rules: ChainRules, num_steps: int) -> Masks:
    """Return the masks behind the last token of a request, whose draft has at most `num_steps` tokens."""
    assert rules.mask_id is not None
    num_more = 0 if rules.skips_last else -1
    return Masks(rules.mask_id, num_more, num_steps + num_more)
