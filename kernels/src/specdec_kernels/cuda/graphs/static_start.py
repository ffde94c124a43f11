"""What a recorded draft loop starts from: given logits, or a pass over new tokens that is recorded with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from typing import NamedTuple

import torch

from specdec.interfaces import PassMemory, VerdictOffsets
from specdec_kernels.cuda.graphs.recorder import Tensors
from specdec_kernels.cuda.graphs.static_pass import StaticPass
from specdec_kernels.triton.accepted_rows import accepted_rows
from specdec_runtime.interfaces import ContextRows

RunStep = Callable[[StaticPass, torch.Tensor | None], Tensors]
"""Runs a pass in its place with features `[T, F]`; returns its logits, and for a head its carries `[T, F]`."""
WriteRows = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], None]
"""See `PagedBackend.write`."""
Combine = Callable[[torch.Tensor, tuple[torch.Tensor, ...]], torch.Tensor]
"""See `DraftHead.combine`."""


class Reads(NamedTuple):
    """How a module reads the target's states."""

    combine: Combine | None = None
    mask_feature: torch.Tensor | None = None
    """See `DraftHead`."""
    context: ContextRows | None = None
    """See `Runner`."""
    write: WriteRows | None = None
    """Writes what that gives."""


class Start(ABC):
    """Gives the logits `[T, V]` of each request's last token, and for a head the carry `[T, F]`.

    Args:
        size: number of rows of its tensors.
        given: tensors of a batch, with at most as many rows, for shape, dtype and device.
    """

    def __init__(self, size: int, given: Tensors) -> None:
        self._given = [each.new_zeros(size, *each.shape[1:]) for each in given]

    @property
    def num_bytes(self) -> int:
        """Memory of its tensors."""
        return sum(each.nbytes for each in self._given)

    def fill(self, given: Tensors) -> None:
        """Copy tensors of a batch to their places, by one launch; nobody reads what is in the rows after theirs."""
        if given:
            torch._foreach_copy_([place[: len(given[0])] for place in self._given], list(given))

    def fill_from_verdict(self, memory: PassMemory, offsets: VerdictOffsets, size: int) -> bool:
        """Take what the verdict on `size` requests gives in place of a batch's; False if it does not give this."""
        return False

    @abstractmethod
    def run(self, run_pass: RunStep) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return logits and carry."""


class GivenStart(Start):
    """They are given."""

    def run(self, run_pass: RunStep) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See `Start.run`."""
        logits, *carry = self._given
        return logits, carry[0] if carry else None


class StatesStart(Start):
    """Reads the target's states `[n, H]` that predicted new tokens; or none of them.

    Args:
        size: see `Start`.
        given: likewise, of every kind that is read.
        first: how many kinds, the first ones, are not.
    """

    def __init__(self, size: int, given: Tensors, first: int = 0) -> None:
        super().__init__(size, given)
        self._first = first
        self.states: torch.Tensor | None = None
        if len({(each.shape[1], each.dtype) for each in given}) == 1:  # of one tensor, which one launch fills
            self.states = torch.stack(self._given)
            self._given = [*self.states.unbind()]

    def fill_from_verdict(self, memory: PassMemory, offsets: VerdictOffsets, size: int) -> bool:
        """See `Start.fill_from_verdict`: the states of what is emitted, unless they are not where the verdict is."""
        if not self._given:
            return True
        made, own = memory.states, self.states
        if made is not None:  # one kind alone is the first
            made = made[:1] if own is not None and len(own) == 1 and not self._first else made[self._first :]
        if made is None or own is None or offsets.row_starts < 0 or made.dtype != own.dtype:
            return False
        if (made.shape[0], made.shape[2]) != (own.shape[0], own.shape[2]):
            return False  # it reads other ones
        row_starts, counts = (
            memory.numbers[at : at + size] for at in (offsets.row_starts, offsets.num_accepted)
        )
        nodes, columns = None, offsets.num_columns - 1
        if offsets.nodes >= 0:
            nodes = memory.numbers[offsets.nodes : offsets.nodes + size * columns].view(size, columns)
        with torch.cuda.device(own.device) if own.is_cuda else nullcontext():
            accepted_rows(made, row_starts, counts, nodes=nodes, out=own)
        return True


class NewRowsStart(StatesStart):
    """They are those of a pass over new tokens, for a head with the target's states, which are given.

    Args:
        step: the pass in its place; the last row of each request is one of its `logits_rows`.
        num_rows: T.
        given: the target's states `[n, H]` of every kind; () for a model.
        combine: the head's; None for a model.
    """

    def __init__(self, step: StaticPass, num_rows: int, given: Tensors, combine: Combine | None) -> None:
        super().__init__(len(step.batch.token_ids), given)
        self._step, self._combine = step, combine
        step.batch.logits_rows = self._last_rows = step.logits_rows[:num_rows]

    @property
    def num_bytes(self) -> int:
        """See `Start.num_bytes`."""
        return super().num_bytes + self._step.num_bytes

    def run(self, run_pass: RunStep) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See `Start.run`."""
        self._step.make_inputs()
        if self._combine is None:
            return run_pass(self._step, None)[0], None
        first, *aux = self._given
        logits, carries, *_ = run_pass(self._step, self._combine(first, tuple(aux)))
        return logits, carries[self._last_rows]


class BlockStart(StatesStart):
    """They are those of a pass over new tokens and masks; or over last tokens and masks, once rows of the text are written.

    Args:
        step: the pass in its place.
        new: the new rows in their place, if they are written before.
        given: see `NewRowsStart`.
        reads: how the states are read.
    """

    def __init__(self, step: StaticPass, new: StaticPass | None, given: Tensors, reads: Reads) -> None:
        super().__init__(len((new or step).batch.token_ids), given, first=int(reads.context is not None))
        self._step, self._new, self._reads = step, new, reads

    def run(self, run_pass: RunStep) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See `Start.run`."""
        self._step.make_inputs()
        if self._new is not None and self._reads.context is not None:
            context, write, new = self._reads.context, self._reads.write, self._new
            assert write is not None
            for layer, rows in enumerate(context.rows(tuple(self._given), new.batch.positions)):
                write(layer, *rows, new.rows.slots)
            return context.finish(run_pass(self._step, None)[0]), None
        return run_pass(self._step, self._features())[0], None

    def _features(self) -> torch.Tensor | None:
        """Return the features of all rows of a head's pass; None for a model."""
        reads, step = self._reads, self._step
        if reads.combine is None or reads.mask_feature is None:
            return None
        first, *aux = self._given
        features = reads.combine(first, tuple(aux))
        rows = torch.arange(len(features), device=features.device)
        last = step.logits_rows[: len(step.rows.context_lens)]
        ends = step.rows.query_starts[1 : len(last) + 1]
        request = torch.searchsorted(ends, rows, right=True).clamp_max(len(last) - 1)
        num_masks = ends - 1 - last
        source = (rows - (num_masks.cumsum(0) - num_masks)[request]).clamp(0, len(rows) - 1)
        return torch.where((rows > last[request])[:, None], reads.mask_feature, features[source])
