"""The recorded passes of one runner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np
import torch

from specdec.interfaces import NeedsTokens, PassMemory
from specdec_kernels.cuda.graphs.pass_shape import (
    MAX_ROWS,
    MAX_WHOLE_ROWS,
    PassShape,
    prompt_shape,
    shape_of,
)
from specdec_kernels.cuda.graphs.recorder import Recorder, Tensors
from specdec_kernels.cuda.graphs.recordings import MAX_RECORDINGS, Graphs
from specdec_kernels.cuda.graphs.static_pass import StaticPass, num_numbers
from specdec_kernels.cuda.paged_pass import AttentionOutputs, Int64s, PagedPass, PassNumbers, bound_of
from specdec_kernels.triton.paged_attention.tree import WORD
from specdec_runtime.backends import FACTOR, distance
from specdec_runtime.interfaces import PackedBatch

_TOLERANCES = {torch.float32: 1e-3, torch.float64: 1e-9}
"""Relative distance between a replay and the pass it repeats that is always allowed."""
_NUM_DRAFTED = 24
"""Room for drafted nodes on the device per row of the pass (where drafts differ in length, some are no rows), and for the
verdict on them."""

RunPass = Callable[[PackedBatch, torch.Tensor | None], Tensors]
"""Runs a pass over all its rows, with features `[T, F]` or None; each result has T rows."""


@runtime_checkable
class PagedBackend(Protocol):
    """An attention backend that reads a pass from tensors only, which makes it recordable."""

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """Dtypes of keys and values for which that holds."""

    def numbers(self, batch: PackedBatch) -> PassNumbers:
        """Return what the kernels read of a pass, on the host."""

    def use(self, batch: PackedBatch, rows: PagedPass) -> None:
        """Use these tensors for the attention of a batch."""

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor) -> None:
        """Write rows `[T, Hkv, D]` of a layer to slots `[T]` of the cache, but where that is -1."""


class PassGraphs(Graphs[StaticPass]):
    """Replays the passes of a runner that are short enough to be bound by launch overhead on the host.

    Passes with prompts have logits of some rows only; their shapes are recorded by `prepare` alone.
    Shapes of chains are recorded there too, others the second time they are used. A recording's outputs are compared once
    with those of the eager pass. If recording fails or they differ, one warning is logged and all later passes run eagerly.

    Args:
        run: runs a pass.
        recorder: the device's recorder.
        backend: the runner's attention.
        max_context: maximum sequence length, in tokens.
        rounding: relative distance of the model's own logits from those in wider arithmetic.
        keeps_outputs: whether outputs are read after the next pass; those of a target are not.
        mask_words: words of the mask of trees, with which every pass is recorded; 0 if trees are not expected.
        pass_memory: where the numbers of all passes are, for a target's; None for a place of their own.
    """

    def __init__(
        self,
        run: RunPass,
        recorder: Recorder,
        backend: PagedBackend,
        max_context: int,
        rounding: float = 0.0,
        *,
        keeps_outputs: bool = True,
        mask_words: int = 0,
        pass_memory: PassMemory | None = None,
    ) -> None:
        super().__init__("passes", recorder)
        self._mask_words = mask_words
        self._rounding, self._keeps_outputs = rounding, keeps_outputs
        self._run, self._backend = run, backend
        self._max_context = max_context
        self._pass_memory = pass_memory
        self._memory: PassMemory | None = None
        """That memory, or one of their own once a pass has one."""
        self._most_rows = self._most_logits = MAX_ROWS
        self._prompt_sizes: list[tuple[int, int]] = []
        """Requests and rows with logits that passes with prompts are padded to, small ones first."""
        self._attention_outputs = AttentionOutputs(MAX_ROWS)
        self._last_rows = 0
        """Rows of the last replay."""
        self._shared: list[torch.Tensor] = []
        """Outputs of all recordings, which run one after another; what a recording computes is freed for the next one."""
        self._states = torch.empty(0)
        """`[n, R, H]`: those of them that follow the logits; they are of one width and dtype."""

    @property
    def num_bytes(self) -> int:
        """Device memory that the recordings hold."""
        num_bytes = super().num_bytes + sum(output.nbytes for output in self._shared)
        num_bytes += self._attention_outputs.num_bytes
        return num_bytes + (0 if self._keeps_outputs else self._states.nbytes)

    def prepare(self, shapes: list[PassShape], device: torch.device, features: torch.Tensor | None) -> None:
        """Record shapes with passes of padding, which read and write nothing; as many, the first ones, as half of the room has.

        Args:
            shapes: the shapes.
            device: where the tensors are.
            features: `[T, F]` of a head, for width and dtype.
        """
        self._most_logits = max([MAX_ROWS, *(shape.num_logits for shape in shapes)])
        self._most_rows = max([self._most_logits, *(shape.num_rows for shape in shapes)])
        self._prompt_sizes = sorted({(s.num_requests, s.num_wanted) for s in shapes if s.num_wanted})
        self._attention_outputs = AttentionOutputs(self._most_rows)
        chosen = shapes[: MAX_RECORDINGS // 2]
        # The largest first: the others find room in what it has left of the memory that all share.
        for each in sorted(chosen, key=lambda shape: shape.num_rows, reverse=True):
            shape = replace(each, mask_words=self._mask_words)
            if self.failure is not None:
                return
            static = self._place(shape, device, features)
            self._record_pass(static, shape, partial(self._run_once, static), shape.num_rows)

    def forward(self, batch: PackedBatch, features: torch.Tensor | None = None) -> Tensors | None:
        """Replay a pass; returns the outputs of `run`, logits of the wanted rows only, or None if it has to run eagerly."""
        outputs = None if self.failure is not None else self._replay(batch, features)
        if outputs is None and batch.behind is not None and batch.behind.most:
            raise NeedsTokens
        if outputs is None:
            self.num_plain += 1
        return outputs

    def _replay(self, batch: PackedBatch, features: torch.Tensor | None) -> Tensors | None:
        host = batch.host
        if host is None:
            return None  # a probe
        num_rows, wanted = len(host.token_ids), host.logits_rows
        if wanted is None or num_rows <= MAX_WHOLE_ROWS:
            wanted = None  # a recording has the logits of all
        if num_rows > (self._most_logits if wanted is None else self._most_rows):
            return None
        is_behind_drafts = batch.behind is not None and batch.behind.most > 0
        if batch.has_unread_trees and max(s.num_rows for s in batch.segments) > WORD * self._mask_words:
            if is_behind_drafts:
                return None
            batch.read_trees()
        numbers = self._backend.numbers(batch)
        num_kept = 0
        if batch.behind is not None and is_behind_drafts:  # contexts may be longer
            numbers = replace(numbers, bound=bound_of(int(numbers.context_lens.max()) + batch.behind.most))
            # The pass behind drafts keeps the states of the last one, row by row.
            num_kept = self._last_rows if len(self._states) else 0
        if wanted is None:
            shape = shape_of(num_rows, numbers, self._mask_words)
        else:
            count = len(numbers.context_lens), len(wanted)
            size = next((s for s in self._prompt_sizes if s[0] >= count[0] and s[1] >= count[1]), None)
            if size is None:
                return None
            shape = prompt_shape(num_rows, size, numbers, self._max_context, self._mask_words)

        # What is recorded first runs eagerly, which needs ids that the host knows, or that nothing was drafted behind.
        is_alone = batch.behind is None or not (is_behind_drafts or batch.drafted)
        static = self._find(shape)
        if static is None and is_alone and wanted is None and self._is_due(shape):
            static, numbers = self._record_batch(batch, shape, features)
        if static is None or not static.has_room(batch):
            return None

        # What goes with the pass is sent in its transfer, unless there is too much of it.
        more = None if batch.transfer is None else batch.transfer.packed.view(np.int64)
        more = more if more is not None and len(more) <= len(static.more) else None
        if batch.behind is not None:
            if self._pass_memory is None or not self._pass_memory.holds(static.room):
                batch.behind = batch.behind._replace(offsets=None)
            # The pass advances what verification reads of each request, such as its number of tokens, which goes with it.
            growing = [] if batch.transfer is None else batch.transfer.growing_at
            has_all = (
                more is not None and growing and static.can_run_behind(batch.behind, batch.drafted, len(more))
            )
            if not is_alone and not has_all:
                return None

        static.send(batch, numbers, features, more)
        if self._memory is not None:
            self._memory.room = static.room
        if batch.transfer is not None and more is not None:
            batch.transfer.arrive(static.more[: len(more)].view(torch.uint8))
        if num_kept > shape.num_rows:  # more than the recording keeps
            self._keep_states(num_kept)
        static.recording.replay()
        self.num_replays, self._last_rows = self.num_replays + 1, num_rows
        if self._pass_memory is not None:
            self._pass_memory.num_passes += 1
        return self._results(static, num_rows, host.logits_rows)

    def _record_batch(
        self, batch: PackedBatch, shape: PassShape, features: torch.Tensor | None
    ) -> tuple[StaticPass | None, PassNumbers]:
        """Record a shape with a batch of it; returns None on failure, and the batch's numbers, now that its trees are read."""
        batch.read_trees()
        numbers = self._backend.numbers(batch)
        batch.send()
        if batch.behind is not None:  # a new place is filled with padding, perhaps where the verdict is
            batch.behind = batch.behind.kept()
        static = self._place(shape, batch.device, features)
        if not static.has_room(batch):
            return None, numbers
        static.send(batch, numbers, features)
        whole = partial(self._run, replace(batch, logits_rows=None), features)
        return self._record_pass(static, shape, whole, batch.num_rows), numbers

    def _results(self, static: StaticPass, num_rows: int, wanted: Int64s | None) -> Tensors:
        """Return what a replay left of `num_rows` rows: the logits that are wanted, None for all, and states."""
        logits, *states = static.recording.outputs
        if wanted is None or static.batch.logits_rows is not None:  # which has them alone
            logits = logits[: num_rows if wanted is None else len(wanted)]
            logits = logits.clone() if self._keeps_outputs else logits
        else:
            logits = logits[static.logits_rows[: len(wanted)]]
        if not states:
            return (logits,)
        kept = self._states[:, :num_rows]
        return (logits, *(kept.clone() if self._keeps_outputs else kept).unbind())

    def _place(self, shape: PassShape, device: torch.device, features: torch.Tensor | None) -> StaticPass:
        place, num_drafted = (shape, self._max_context, device, features), _NUM_DRAFTED * shape.num_logits
        outputs = self._attention_outputs
        memory = self._memory or self._pass_memory or PassMemory(device)
        num_more = len(memory.numbers) - num_numbers(shape, 0, num_drafted)
        if num_more < _num_extra(shape):
            return StaticPass(*place, _num_extra(shape), num_drafted, outputs=outputs)
        self._memory = memory
        return StaticPass(*place, num_more, num_drafted, memory.numbers, outputs)

    def _run_once(self, static: StaticPass) -> Tensors:
        static.make_inputs()
        self._backend.use(static.batch, static.rows)
        return self._run(static.batch, static.features)

    def _run_static(self, static: StaticPass) -> Tensors:
        self._keep_states(len(static.batch.token_ids))
        outputs = self._run_once(static)
        places = tuple(place[: len(output)] for place, output in zip(self._shared, outputs, strict=True))
        for place, output in zip(places, outputs, strict=True):
            place.copy_(output)
        return places

    def _keep_states(self, num_rows: int) -> None:
        """Copy the states of the last pass, where a proposer reads those of the pass before."""
        if self._memory is not None and self._memory.states_before is not None:
            self._memory.states_before[:, :num_rows].copy_(self._states[:, :num_rows])

    def _share(self, made: Tensors) -> None:
        """Allocate the outputs of all recordings, like those that a pass has made."""
        logits, *states = made
        self._shared = [logits.new_empty(self._most_logits, *logits.shape[1:])]
        if states:
            self._states = states[0].new_empty(len(states), self._most_rows, *states[0].shape[1:])
            self._shared += self._states.unbind()
            if self._memory is not None:
                self._memory.states = self._states
                if not self._keeps_outputs:
                    self._memory.states_before = torch.empty_like(self._states)

    def _record_pass(
        self, static: StaticPass, shape: PassShape, run: Callable[[], Tensors], num_rows: int
    ) -> StaticPass | None:
        """Record a shape with a pass of `num_rows` rows, which `run` runs eagerly; returns None on failure."""

        def first() -> Tensors:
            made = run()
            if not self._shared:
                self._share(made)
            return made

        def differ(got: Tensors, expected: Tensors) -> str | None:
            return difference(own_rows(got, num_rows), own_rows(expected, num_rows), self._rounding)

        return self._record(shape, static, partial(self._run_static, static), first, differ)


def _num_extra(shape: PassShape) -> int:
    """Return the least room for what is sent along with a pass: numbers of each request, and of each row."""
    return 16 * shape.num_requests + 8 * shape.num_rows


def own_rows(outputs: Tensors, num_rows: int) -> Tensors:
    """Return copies of the outputs of rows that are not padding; the next replay writes to the same memory."""
    return tuple(output[:num_rows].clone() for output in outputs)


def difference(got: Tensors, expected: Tensors, rounding: float) -> str | None:
    """Return how a replay differs from the pass it repeats; None if it agrees.

    Padded products may sum in another order. The error of each result is then about that of the model's own forward,
    `rounding`, and so is their difference.
    """
    for ours, theirs in zip(got, expected, strict=True):
        error = distance(ours, theirs)
        allowed = max(FACTOR * rounding, _TOLERANCES.get(theirs.dtype, 3e-2))
        if not error <= allowed:
            return f"a replay differs from the pass it repeats by {error:.1e}, where {allowed:.1e} is allowed"
    return None
