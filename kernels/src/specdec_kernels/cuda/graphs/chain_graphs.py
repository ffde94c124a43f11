"""The whole draft loop of a runner on the device, without the host between choosing tokens and running them."""

from __future__ import annotations

import numpy as np
import torch

from specdec.interfaces import Chains, ChainWork, HostRows, NewRows, PackedBatch, Segment, done_once
from specdec_kernels.cuda.graphs.pass_graphs import PagedBackend, RunPass, difference
from specdec_kernels.cuda.graphs.pass_shape import larger_shapes
from specdec_kernels.cuda.graphs.recorder import Recorder, Recording, Tensors
from specdec_kernels.cuda.graphs.recordings import Graphs
from specdec_kernels.cuda.graphs.static_chain import ChainShape, StaticChain
from specdec_kernels.cuda.graphs.static_pass import StaticPass

MAX_CHAIN_REQUESTS = 64
"""Maximum number of requests whose chains are drafted together."""


class ChainGraphs(Graphs[StaticChain]):
    """Drafts chains with one recording per shape: number of requests, number of steps, and how tokens are chosen.

    The host waits for nothing but confidences. The first time a shape is used, and whenever recording failed, the loop runs
    eagerly. The second time, it is recorded, and the recording is compared with the eager result.

    Args:
        run: runs a pass, as for `PassGraphs`; for a head it returns the carry after the logits.
        recorder: the device's recorder.
        backend: the runner's attention.
        max_context: maximum sequence length, in tokens.
        max_positions: number of positions that the model supports.
    """

    max_new_rows = 0
    """The loop starts from logits; passes over new tokens are recorded separately."""

    def __init__(
        self, run: RunPass, recorder: Recorder, backend: PagedBackend, max_context: int, max_positions: int
    ) -> None:
        super().__init__("draft loops")
        self._run_pass, self._recorder, self._backend = run, recorder, backend
        self._max_context, self._max_positions = max_context, max_positions

    @property
    def max_rows(self) -> int:
        """Maximum number of requests of a loop; 0 once recording has failed. Single passes may still be recorded."""
        return MAX_CHAIN_REQUESTS if self.failure is None else 0

    def draft(self, logits: torch.Tensor, states: torch.Tensor | None, work: ChainWork) -> Chains:
        """Return the tokens of each row; see `Runner.draft_chain`."""
        num_rows = len(work.first_slots)
        batch = _last_pass(work, logits.device)
        numbers = self._backend.numbers(batch)
        assert batch.host is not None
        is_greedy = not any(t > 0 for t in work.temperatures)
        has_cuts = bool(work.cuts) and not is_greedy
        shapes = [
            ChainShape(last, work.num_steps, is_greedy, work.rules, has_cuts)
            for last in larger_shapes(num_rows, numbers, MAX_CHAIN_REQUESTS)
        ]
        shape = shapes[0]
        # More rows of padding cost less than a loop that is not recorded, when requests end one after another.
        found = next(filter(None, map(self._recordings.find, shapes)), None)
        static = (
            StaticChain(shape, self._max_context, self._max_positions, logits, states)
            if found is None
            else found[0]
        )
        static.fill(batch.host, numbers, logits, states, work)
        if found is not None:
            found[1].replay()
            self.num_replays += 1
            return _chains(found[1].outputs, num_rows)
        outputs = self._run(static)
        self.num_plain += 1
        if self._recordings.is_due(shape) and bool(outputs[3].isfinite().all()):
            self._record(shape, static, outputs, num_rows)
        return _chains(outputs, num_rows)

    def draft_after(self, rows: NewRows, work: ChainWork) -> Chains:
        """Not possible: `max_new_rows` is 0."""
        raise NotImplementedError("a recorded loop starts from logits")

    def _run(self, static: StaticChain) -> Tensors:
        def run(step: StaticPass) -> Tensors:
            self._backend.use(step.batch, step.rows)
            return self._run_pass(step.batch, step.features)

        return static.run(run)

    def _record(self, shape: ChainShape, static: StaticChain, expected: Tensors, num_rows: int) -> None:
        """Record a loop that has run, and compare the results; every run writes the same values to the cache."""
        with done_once():
            try:
                recording: Recording = self._recorder.record(lambda: self._run(static))
                recording.replay()
                wrong = _wrong(recording.outputs, expected, num_rows)
            except RuntimeError as error:  # not recordable, or out of device memory
                wrong = f"{type(error).__name__}: {error}"
        if wrong is None:
            self._recordings.keep(shape, static, recording)
        else:
            self._recordings.fail(wrong)


def _wrong(got: Tensors, expected: Tensors, num_rows: int) -> str | None:
    """Return how a replay differs from the loop it repeats; None if it agrees.

    The first tokens come from given logits, so they must be equal. The logits of the pass over them may differ slightly,
    and so may later tokens where two logits are almost equal.
    """
    if not torch.equal(got[0][:num_rows, 0], expected[0][:num_rows, 0]):
        return "a replay chose other tokens"
    return difference((got[3][:num_rows],), (expected[3][:num_rows],), 0.0) if got[3].shape[1] else None


def _last_pass(work: ChainWork, device: torch.device) -> PackedBatch:
    """Return the pass with one row per request that has the longest contexts of the loop."""
    slots, last = (
        np.array(work.first_slots, np.int64),
        np.array(work.num_cached, np.int64) + work.num_steps - 1,
    )
    segments = [
        Segment(row, 1, slot, cached)
        for row, (slot, cached) in enumerate(zip(slots.tolist(), last.tolist(), strict=True))
    ]
    return PackedBatch.of_rows(HostRows(np.zeros_like(last), last, slots + last, None), segments, device)


def _chains(outputs: Tensors, num_rows: int) -> Chains:
    """Return the chains, ids with those of padding, which cost nothing; q as a copy that the next replay cannot write."""
    ids, confidences, draft_probs, _ = outputs
    return Chains(ids[:num_rows], confidences[:num_rows].cpu().numpy(), draft_probs[:num_rows].clone())
