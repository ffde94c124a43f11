"""The recorded passes of one runner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol, runtime_checkable

import torch

from specdec.runner.agreement import FACTOR, distance
from specdec.runner.graphs.pass_shape import MAX_ROWS, MAX_WHOLE_ROWS, PassShape, padded_shape
from specdec.runner.graphs.recorder import Recorder, Recording, Tensors
from specdec.runner.graphs.recordings import Graphs
from specdec.runner.graphs.static_pass import StaticPass
from specdec.runner.packed import PackedBatch
from specdec.runner.paged_pass import PagedPass

_TOLERANCES = {torch.float32: 1e-3, torch.float64: 1e-9}
"""Relative distance of a replay from the pass it repeats that is always allowed."""

RunPass = Callable[[PackedBatch, torch.Tensor | None], Tensors]
"""Runs a pass over all its rows, given features `[T, F]` or None; each result has T rows."""


@runtime_checkable
class PagedBackend(Protocol):
    """Attention that reads a pass from tensors alone."""

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """Types of keys and values of which that holds."""

    def prepare(self, batch: PackedBatch) -> tuple[PagedPass, torch.Tensor | None]:
        """Return a pass as the kernels see it, and its tree mask."""

    def use(self, batch: PackedBatch, rows: PagedPass, tree_mask: torch.Tensor | None) -> None:
        """Attend for a batch by these tensors."""


class PassGraphs(Graphs[StaticPass]):
    """Replays the passes of a runner that are short enough for the host to be what takes long.

    A shape that comes a second time is recorded, and what the recording computes is compared once with what the pass
    computed. If recording fails or the two differ, a warning says so once and passes run operation by operation from then on.

    Args:
        run: the pass.
        recorder: of the device.
        backend: the runner's attention.
        max_context: the longest sequence, in tokens.
        rounding: relative distance of the model's own logits from those in wider arithmetic.
    """

    def __init__(
        self, run: RunPass, recorder: Recorder, backend: PagedBackend, max_context: int, rounding: float = 0.0
    ) -> None:
        super().__init__("passes")
        self._rounding = rounding
        self._run, self._recorder, self._backend = run, recorder, backend
        self._max_context = max_context

    def forward(self, batch: PackedBatch, features: torch.Tensor | None = None) -> Tensors | None:
        """Replay a pass; returns what `run` does for its rows, all of them, or None if it has to run operation by operation."""
        outputs = None if self.failure is not None else self._replay(batch, features)
        if outputs is None:
            self.num_plain += 1
        return outputs

    def _replay(self, batch: PackedBatch, features: torch.Tensor | None) -> Tensors | None:
        num_rows = len(batch.token_ids)
        if num_rows > (MAX_ROWS if batch.logits_rows is None else MAX_WHOLE_ROWS):
            return None
        rows, tree_mask = self._backend.prepare(batch)
        shape = padded_shape(num_rows, rows)
        found = self._recordings.find(shape)
        if found is None and self._recordings.is_due(shape):
            found = self._record(shape, batch, rows, tree_mask, features)
        if found is None:
            return None
        static, recording = found
        static.fill(batch, rows, tree_mask, features)
        recording.replay()
        self.num_replays += 1
        return own_rows(recording.outputs, num_rows)

    def _run_static(self, static: StaticPass) -> Tensors:
        self._backend.use(static.batch, static.rows, static.tree_mask)
        return self._run(static.batch, static.features)

    def _record(
        self,
        shape: PassShape,
        batch: PackedBatch,
        rows: PagedPass,
        tree_mask: torch.Tensor | None,
        features: torch.Tensor | None,
    ) -> tuple[StaticPass, Recording] | None:
        """Record a shape by a pass of it, if that goes well. All runs of the pass write the same to the cache."""
        static = StaticPass(shape, self._max_context, batch.token_ids.device, features)
        static.fill(batch, rows, tree_mask, features)
        try:
            expected = self._run(replace(batch, logits_rows=None), features)
            recording = self._recorder.record(partial(self._run_static, static))
            recording.replay()
            wrong = difference(own_rows(recording.outputs, len(batch.token_ids)), expected, self._rounding)
        except RuntimeError as error:  # what the device cannot record, or has no memory for
            wrong = f"{type(error).__name__}: {error}"
        if wrong is not None:
            self._recordings.fail(wrong)
            return None
        self._recordings.keep(shape, static, recording)
        return static, recording


def own_rows(outputs: Tensors, num_rows: int) -> Tensors:
    """Return copies of what belongs to the rows that are not padding: the next replay writes to the same memory."""
    return tuple(output[:num_rows].clone() for output in outputs)


def difference(got: Tensors, expected: Tensors, rounding: float) -> str | None:
    """Return how a replay differs from the pass it repeats; None if it does not.

    Padded products may sum in another order. Each of the two is then about as far from the exact result as the model's own
    forward, `rounding`, and that far from one another.
    """
    for ours, theirs in zip(got, expected, strict=True):
        error = distance(ours, theirs)
        allowed = max(FACTOR * rounding, _TOLERANCES.get(theirs.dtype, 3e-2))
        if not error <= allowed:
            return f"a replay differs from the pass it repeats by {error:.1e}, where {allowed:.1e} is allowed"
    return None
