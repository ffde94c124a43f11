"""What a recorded draft loop starts from: given logits, or a pass over new tokens that is recorded with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext

import torch

from specdec_kernels.cuda.graphs.recorder import Tensors
from specdec_kernels.cuda.graphs.static_pass import StaticPass
from specdec_kernels.cuda.pass_memory import PassMemory, Places
from specdec_kernels.triton.accepted_rows import accepted_rows

RunStep = Callable[[StaticPass, torch.Tensor | None], Tensors]
"""Runs a pass in its place with features `[T, F]`; returns its logits, and for a head its carries `[T, F]`."""
Combine = Callable[[torch.Tensor, tuple[torch.Tensor, ...]], torch.Tensor]
"""See `DraftHead.combine`."""


class Start(ABC):
    """Gives the logits `[T, V]` of each request's last token, and for a head the carry `[T, F]`.

    Args:
        size: number of rows of its tensors.
        given: tensors of a batch, with at most as many rows, for width, dtype and device.
    """

    def __init__(self, size: int, given: Tensors) -> None:
        self._given = [each.new_zeros(size, each.shape[1]) for each in given]

    @property
    def num_bytes(self) -> int:
        """Memory of its tensors."""
        return sum(each.nbytes for each in self._given)

    def fill(self, given: Tensors) -> None:
        """Copy tensors of a batch to their places, by one launch; nobody reads what is in the rows after theirs."""
        if given:
            torch._foreach_copy_([place[: len(given[0])] for place in self._given], list(given))

    @abstractmethod
    def run(self, run_pass: RunStep) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return logits and carry."""


class GivenStart(Start):
    """They are given."""

    def run(self, run_pass: RunStep) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See `Start.run`."""
        logits, *carry = self._given
        return logits, carry[0] if carry else None


class NewRowsStart(Start):
    """They are those of a pass over new tokens, for a head with the target's states, which are given.

    Args:
        step: the pass in its place; the last row of each request is one of its `logits_rows`.
        num_rows: T.
        given: the target's states `[n, H]` of every kind; () for a model.
        combine: the head's; None for a model.
    """

    def __init__(self, step: StaticPass, num_rows: int, given: Tensors, combine: Combine | None) -> None:
        super().__init__(len(step.batch.token_ids), given)
        self._states: torch.Tensor | None = None
        if len({(each.shape[1], each.dtype) for each in given}) == 1:  # of one tensor, which one launch fills
            self._states = torch.stack(self._given)
            self._given = [*self._states.unbind()]
        self._step, self._combine = step, combine
        step.batch.logits_rows = self._last_rows = step.logits_rows[:num_rows]

    @property
    def num_bytes(self) -> int:
        """See `Start.num_bytes`."""
        return super().num_bytes + self._step.num_bytes

    def follow(self, memory: PassMemory, places: Places, size: int) -> bool:
        """Take the target's states of what the verdict on `size` requests emits; False if they are not where it is."""
        if self._combine is None:
            return True
        made, own = memory.states, self._states
        if made is None or own is None or places.row_starts < 0 or made.dtype != own.dtype:
            return False
        if (made.shape[0], made.shape[2]) != (own.shape[0], own.shape[2]):
            return False  # it reads other ones
        row_starts, counts = (
            memory.numbers[at : at + size] for at in (places.row_starts, places.num_accepted)
        )
        with torch.cuda.device(own.device) if own.is_cuda else nullcontext():
            accepted_rows(made, row_starts, counts, out=own)
        return True

    def run(self, run_pass: RunStep) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See `Start.run`."""
        self._step.make_inputs()
        if self._combine is None:
            return run_pass(self._step, None)[0], None
        first, *aux = self._given
        logits, carries, *_ = run_pass(self._step, self._combine(first, tuple(aux)))
        return logits, carries[self._last_rows]
