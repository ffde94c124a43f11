"""The tensors of a recorded draft loop whose steps need no cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from specdec.interfaces import ChainRules, ChainWork
from specdec_kernels.cuda.graphs.recorder import Tensors
from specdec_kernels.cuda.graphs.static_choice import ChosenTokens, StaticChoice
from specdec_kernels.cuda.graphs.static_pass import copy_in
from specdec_kernels.cuda.paged_pass import Int64s
from specdec_kernels.triton.noise import NoiseKeys

_NUM_COLUMNS = 4
"""Numbers of a row: its last token, and three keys of the noise."""


class Steps(Protocol):
    """What gives the logits of one depth after another."""

    def begin(self, states: torch.Tensor) -> torch.Tensor:
        """Return what step 0 reads, for R requests, of what is given to a draft `[R, ...]`."""

    def step(
        self, index: int, states: torch.Tensor, token_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what the next step reads, and logits `[R, V']`, after tokens `[R]`, the target's ids."""


@dataclass(frozen=True, slots=True)
class StepsShape:
    """The shape of a recorded loop."""

    num_rows: int
    num_steps: int
    is_greedy: bool
    """Whether all rows choose greedily and no noise is needed."""
    has_cuts: bool
    """See `StaticChoice`."""
    rules: ChainRules


class StaticSteps:
    """A draft loop that reads tensors at fixed addresses.

    Args:
        shape: its sizes.
        steps: gives logits.
        given: `[T, ...]` the place of what it begins with.
    """

    def __init__(self, shape: StepsShape, steps: Steps, given: torch.Tensor) -> None:
        self.shape, self._steps, self._given = shape, steps, given
        size = shape.num_rows
        sizes = _NUM_COLUMNS * size, 0 if shape.is_greedy else 2 * size
        self._numbers = torch.zeros(sum(sizes), dtype=torch.int64, device=given.device)
        table, heat = self._numbers.split(sizes)
        self._token_ids, *keys = table.view(_NUM_COLUMNS, size)
        way = {"is_greedy": shape.is_greedy, "has_cuts": shape.has_cuts}
        self._choice = StaticChoice(shape.rules, NoiseKeys(*keys), heat, **way)

    @property
    def num_bytes(self) -> int:
        """Memory of its own tensors."""
        return self._numbers.nbytes

    def send(self, token_ids: Int64s, given: Sequence[torch.Tensor], work: ChainWork) -> None:
        """Send the last tokens `[R]` by one transfer, and by one launch what each request begins with, all of it or its first
        rows."""
        table = np.zeros((_NUM_COLUMNS, self.shape.num_rows), np.int64)
        keys = work.keys
        table[:, : len(token_ids)] = token_ids, keys.seeds, keys.positions, keys.samples
        copy_in(
            self._numbers, torch.from_numpy(np.concatenate((table.reshape(-1), self._choice.numbers(work))))
        )
        places = [place[: len(each)] for place, each in zip(self._given, given, strict=False)]
        torch._foreach_copy_(places, list(given))

    def run(self) -> Tensors:
        """Run the loop; see `ChosenTokens.outputs`."""
        states, token_ids = self._steps.begin(self._given), self._token_ids
        chosen = ChosenTokens(self._choice)
        for step in range(self.shape.num_steps):
            states, logits = self._steps.step(step, states, token_ids)
            token_ids = chosen.add(logits)
        return chosen.outputs()
