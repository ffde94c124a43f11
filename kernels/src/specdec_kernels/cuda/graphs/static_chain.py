"""The recorded draft loop of chains."""

from __future__ import annotations

from typing import Any

import torch

from specdec_kernels.cuda.graphs.recorder import Tensors
from specdec_kernels.cuda.graphs.static_choice import ChosenTokens
from specdec_kernels.cuda.graphs.static_loop import ChainShape, StaticLoop
from specdec_kernels.cuda.graphs.static_start import RunStep


class StaticChain(StaticLoop):
    """Chooses one token per request in each step, and runs it to choose the next.

    Args:
        shape: its sizes.
        *place: see `StaticLoop`.
    """

    def __init__(self, shape: ChainShape, *place: Any) -> None:
        super().__init__(shape, shape.last, *place)

    def run(self, run_pass: RunStep) -> Tensors:
        """See `StaticLoop.run` and `ChosenTokens.outputs`."""
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
