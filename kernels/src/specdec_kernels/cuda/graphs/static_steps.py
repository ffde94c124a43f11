"""The tensors of a recorded draft loop whose steps need no cache."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch

from specdec.interfaces import VerdictOffsets
from specdec_kernels.cuda.graphs.loop_table import NOWHERE, LoopTable, TokenChoice
from specdec_kernels.cuda.graphs.recorder import Recording, Tensors
from specdec_kernels.cuda.graphs.static_choice import ChosenTokens
from specdec_kernels.cuda.graphs.static_pass import copy_in
from specdec_kernels.cuda.graphs.static_start import RunStep, StatesStart
from specdec_kernels.cuda.paged_pass import Int64s
from specdec_kernels.triton.accepted_rows import accepted_rows
from specdec_runtime.interfaces import ChainWork, Steps


@dataclass(frozen=True, slots=True)
class StepsShape(TokenChoice):
    """The shape of a recorded loop."""

    num_rows: int


class LastRows(StatesStart):
    """What belongs to new tokens `[n, ...]`, of which a request begins with that of its last one.

    Args:
        place: where it is.
    """

    def __init__(self, place: torch.Tensor) -> None:
        super().__init__(0, ())
        self._given, self.states = [place], place[None]

    def compile(self, counts: torch.Tensor, *, is_tree: bool) -> None:
        """Compile what `fill_from_verdict` launches, which then copies to where it is; `counts [R]` are any numbers."""
        assert self.states is not None
        none = torch.full_like(counts, -1)
        nodes = none[:, None] if is_tree else None
        with torch.cuda.device(counts.device) if counts.is_cuda else nullcontext():
            accepted_rows(self.states.clone(), none, none, nodes=nodes, out=self.states)

    def put(self, given: Sequence[torch.Tensor], rows: Sequence[int]) -> None:
        """Copy what some requests begin with, all of it or its first rows, to rows of the place, by one launch."""
        places = [self._given[0][row][: len(each)] for row, each in zip(rows, given, strict=True)]
        torch._foreach_copy_(places, list(given))

    def run(self, run_pass: RunStep | None = None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See `Start.run`: there is no pass, and what was given are no logits yet."""
        return self._given[0], None


class StaticSteps:
    """A draft loop that reads tensors at fixed addresses.

    Args:
        shape: its sizes.
        steps: gives logits.
        given: `[n, ...]` the place of what it begins with, of as many new tokens as there may be.
        verdicts: where the verdict on its last draft may be, and the most new tokens of a request; None if it is nowhere.
    """

    recording: Recording
    """Once there is one."""

    def __init__(
        self, shape: StepsShape, steps: Steps, given: torch.Tensor, verdicts: tuple[torch.Tensor, int] | None
    ) -> None:
        self.shape, self._steps, self._verdicts = shape, steps, verdicts
        size, num_new = shape.num_rows, len(given) + len(given) % 2
        sizes = num_new, num_new, LoopTable.num_numbers(size, size, shape)
        self._numbers = torch.zeros(sum(sizes), dtype=torch.int64, device=given.device)
        self._token_ids, self._last_rows, table = self._numbers.split(sizes)
        self._table = LoopTable(table, size, size, shape)
        self._places = (
            self._token_ids.new_zeros(2, num_new),
            self._token_ids.new_zeros(2, size + size % 2 + 2),
        )
        """Those of new tokens in a cache, which there is not."""
        self.start = LastRows(given)

    @property
    def num_bytes(self) -> int:
        """Memory of its own tensors."""
        return self._numbers.nbytes

    def send(self, token_ids: Int64s, work: ChainWork, offsets: VerdictOffsets = NOWHERE) -> None:
        """Send the last tokens `[R]`, to which as many first rows of what is given belong, by one transfer."""
        rows = np.zeros((2, len(self._token_ids)), np.int64)
        rows[:, : len(token_ids)] = token_ids, np.arange(len(token_ids))
        copy_in(
            self._numbers,
            torch.from_numpy(np.concatenate((rows.reshape(-1), self._table.packed(work, offsets)))),
        )

    def run(self) -> Tensors:
        """Run the loop; see `ChosenTokens.outputs`."""
        size = self.shape.num_rows
        if self._verdicts is not None:
            (positions, slots), (starts, lengths) = self._places
            # Without a cache only the ids of new tokens and their rows are read; places and lengths go to spare tensors.
            rows = self._token_ids, positions, slots, starts[: size + 1], lengths[:size], self._last_rows
            self._table.advance_rows(rows, *self._verdicts)
        last = self._last_rows[:size]
        states, token_ids = self._steps.begin(self.start.run()[0][last]), self._token_ids[last]
        chosen = ChosenTokens(self._table.choice)
        for step in range(self.shape.num_steps):
            states, logits = self._steps.step(step, states, token_ids)
            token_ids = chosen.add(logits)
        return chosen.outputs()
