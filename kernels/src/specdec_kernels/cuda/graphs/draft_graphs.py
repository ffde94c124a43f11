"""The whole draft loop of a runner on the device, without the host between choosing tokens and running them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from specdec.interfaces import PassMemory, VerdictOffsets
from specdec_kernels.cuda.graphs.loop_graphs import LoopGraphs, drafted
from specdec_kernels.cuda.graphs.pass_graphs import PagedBackend, RunPass, difference
from specdec_kernels.cuda.graphs.pass_shape import (
    MAX_ROWS,
    MAX_TREE_ROWS,
    PassShape,
    larger_shapes,
    padded,
    shape_of,
)
from specdec_kernels.cuda.graphs.recorder import Recorder, Tensors
from specdec_kernels.cuda.graphs.static_choice import StaticChoice
from specdec_kernels.cuda.graphs.static_loop import (
    ChainShape,
    Numbered,
    RecordedLoop,
    StaticBlock,
    StaticChain,
    masks_of,
)
from specdec_kernels.cuda.graphs.static_pass import StaticPass
from specdec_kernels.cuda.graphs.static_start import Reads, StatesStart
from specdec_kernels.cuda.graphs.static_tree import StaticTree
from specdec_kernels.cuda.paged_pass import Int64s, bound_of
from specdec_runtime.interfaces import Chains, ChainWork, HostRows, NewRows, PackedBatch, Segment

MAX_CHAIN_REQUESTS = 64
"""Maximum number of requests whose chains are drafted together."""
_TABLE_SIZE = 2**23
"""Most numbers in the tables of a pass over nodes of trees, each of which has its own."""
logger = logging.getLogger("specdec")


class DraftGraphs(LoopGraphs[RecordedLoop]):
    """Drafts chains and trees with one recording per shape: numbers of requests, new tokens and steps, and way to choose.

    The host waits for nothing but confidences. The first time a shape is used, and whenever recording failed, the loop runs
    eagerly. The second time, it is recorded, and the recording is compared with the eager result.

    Args:
        run: runs a pass, as for `PassGraphs`; for a head it returns the carry after the logits.
        recorder: the device's recorder.
        backend: the runner's attention.
        max_context: maximum sequence length, in tokens.
        max_positions: number of positions that the model supports.
        device: where it runs.
        features: `[T, F]` of a head, for width and dtype; None for a model.
        reads: how a head reads the target's states; None for a model.
        pass_memory: where the target's verification leaves its verdicts; None if drafts do not follow these.
    """

    def __init__(
        self,
        run: RunPass,
        recorder: Recorder,
        backend: PagedBackend,
        max_context: int,
        max_positions: int,
        device: torch.device,
        features: torch.Tensor | None = None,
        reads: Reads | None = None,
        pass_memory: PassMemory | None = None,
    ) -> None:
        super().__init__("draft loops", recorder)
        self._pass_memory = pass_memory
        self._run_pass, self._backend = run, backend
        self._max_context, self._max_positions = max_context, max_positions
        self._device, self._features, self._reads = device, features, reads or Reads()
        self._most_steps = 0

    @property
    def max_rows(self) -> int:
        """Maximum number of requests of a loop; 0 once recording has failed. Single passes may still be recorded."""
        return MAX_CHAIN_REQUESTS if self.failure is None else 0

    @property
    def max_new_rows(self) -> int:
        """Maximum number of new tokens; 0 once recording has failed."""
        return MAX_ROWS if self.failure is None else 0

    @property
    def max_tree_nodes(self) -> int:
        """Maximum number of nodes that one step of all trees continues; 0 for models, and once recording has failed."""
        if self.failure is not None or self._features is None:
            return 0
        return min(MAX_ROWS, _TABLE_SIZE // bound_of(self._max_context))

    def prepare(self, shapes: list[tuple[int, int]], page_size: int, rows: NewRows, work: ChainWork) -> None:
        """Record the loops that will be asked for, with padding, which reads and writes nothing.

        Args:
            shapes: numbers of requests, and bounds on contexts.
            page_size: see `PagedPass.page_size`.
            rows: new tokens of one request, as many as there may be.
            work: the draft of that request.
        """
        self._most_steps, self._most_new = work.num_steps, rows.counts[0]
        self._verdicts = self._pass_memory
        verdicts = None if self._verdicts is None else (self._verdicts.numbers, self._most_new)
        ways = [(True, False), *([] if work.rules.is_drawn else [(False, False)]), (False, True)]
        is_block, context = work.rules.mask_id is not None, self._reads.context
        for size, bound in shapes:
            for is_greedy, has_cuts in ways:
                last = padded(size, size, page_size, bound)
                first = padded(size * self._most_new, size, page_size, bound)
                shape = ChainShape(work.num_steps, is_greedy, has_cuts, work.rules, last, first)
                num_rows = size * self._block_rows(work, work.num_steps) if is_block else 0
                if max(num_rows, size * self._most_new) > MAX_TREE_ROWS:
                    logger.info(
                        "drafts of more than %d requests together are not captured in graphs", size // 2
                    )
                    return
                if is_block:
                    block = replace(padded(num_rows, size, page_size, bound), is_causal=self._is_causal)
                    shape = replace(shape, first=None if context is None else first, block=block)
                static = self._place(shape, self._features, rows.states, verdicts)
                self._record_loop(static, self._run(static), last.num_rows)
                if self.failure is not None:
                    return
                if self._verdicts is not None and isinstance(static.start, StatesStart):
                    is_tree = max(work.rules.width, work.rules.siblings) > 1
                    nowhere = VerdictOffsets(0, 0, 2, 0, 0) if is_tree else VerdictOffsets(0, 0, 0, 0)
                    static.start.fill_from_verdict(self._verdicts, nowhere, size)  # which compiles it

    def draft(self, logits: torch.Tensor, states: torch.Tensor | None, work: ChainWork) -> Chains:
        """Return the tokens of each row; see `Runner.draft_chain`."""
        return self._draft(work, (logits,) if states is None else (logits, states))

    def draft_after(self, rows: NewRows, work: ChainWork) -> Chains:
        """Run new rows first, then draft; see `Runner.draft_after`."""
        moved, size = work, len(work.num_cached)
        if not work.is_unread:
            after = [cached + count for cached, count in zip(work.num_cached, rows.counts, strict=True)]
            moved = replace(work, num_cached=after)
        outputs = self._replay_behind(moved)
        if outputs is not None:
            return drafted(outputs, size, work)
        if work.rules.mask_id is None:
            return self._draft(
                moved, rows.states, self._numbers_of(_new_pass(rows, work, self._device)), rows
            )
        masks, depths = masks_of(work.rules, work.num_steps), np.array(work.depths or work.num_steps)
        fed, first, start = rows, None, work
        if self._reads.context is not None:
            first = self._numbers_of(_new_pass(rows, work, self._device))
            ends = np.cumsum(np.array(rows.counts)) - 1
            fed, start = NewRows(rows.token_ids[ends], [1] * len(ends)), moved
        block = _new_pass(
            fed, start, self._device, masks.token_id, np.broadcast_to(depths + masks.num_more, size)
        )
        host, numbers = self._numbers_of(block)
        return self._draft(
            moved, rows.states, first, rows, (host, replace(numbers, is_causal=self._is_causal))
        )

    @property
    def _is_causal(self) -> bool:
        """Whether a row of a pass over masks sees no later one."""
        return self._reads.context is None or self._reads.context.is_causal

    def _block_rows(self, work: ChainWork, num_steps: int) -> int:
        """Return the most rows of a request in a pass over masks."""
        num_new = 1 if self._reads.context is not None else self._most_new or num_steps + 1
        return num_new + masks_of(work.rules, num_steps).most

    def _numbers_of(self, batch: PackedBatch) -> Numbered:
        assert batch.host is not None
        return batch.host, self._backend.numbers(batch)

    def _place(
        self,
        shape: ChainShape,
        features: torch.Tensor | None,
        given: Tensors,
        verdicts: tuple[torch.Tensor, int] | None = None,
    ) -> RecordedLoop:
        """Return the tensors of a loop."""
        kind = StaticChain if shape.rules.width == 1 else StaticTree
        place = shape, self._max_context, self._max_positions, self._device, features, given
        return (kind if shape.block is None else StaticBlock)(*place, self._reads, verdicts)

    def _draft(
        self,
        work: ChainWork,
        given: Tensors,
        first: Numbered | None = None,
        rows: NewRows | None = None,
        block: Numbered | None = None,
    ) -> Chains:
        """Draft from what is given and, if there are any, a first pass over new rows, and one over masks."""
        num_rows = len(work.first_slots)
        last = self._numbers_of(_last_pass(work, self._device)) if block is None else block
        self._most_steps = max(self._most_steps, work.num_steps)
        # The smallest recorded shape that fits.
        shapes = self._shapes(work, last, first)
        shape = next(shapes)
        # More padding costs less than a loop that is not recorded, when requests end one after another.
        found = self._find(shape) or next(filter(None, map(self._find, shapes)), None)
        if found is not None:
            found.send(*last, work, first, self._follow(found, work))
            found.start.fill(given)
            outputs = self._replayed(found)
            if rows is None:
                self._last = None  # logits do not follow verdicts
            return drafted(outputs, num_rows, work)
        self._last = None
        features = self._features if rows is not None else given[1] if len(given) > 1 else None
        static = self._place(shape, features, given)
        static.send(*last, work, first)
        static.start.fill(given)
        outputs = self._run(static)
        self.num_plain += 1
        # Where loops over new rows are recorded at load they are recorded then or never: made here, one knows no verdicts.
        is_due = not (self._most_new and rows is not None) and self._is_due(shape)
        if is_due and bool(outputs[3].isfinite().all()):
            self._record_loop(static, outputs, num_rows)
        return drafted(outputs, num_rows, work)

    def _most_rows(self, loop: RecordedLoop) -> int:
        """See `LoopGraphs._most_rows`: more rows need a wider table."""
        shape = loop.shape
        bounds = shape.last.max_context_len, self._max_context, self._max_positions
        return min(bounds) - shape.num_steps - (shape.block is not None)

    def _shapes(self, work: ChainWork, last: Numbered, first: Numbered | None) -> Iterator[ChainShape]:
        """Yield the shapes of which a recording drafts these chains, those with little padding first."""
        is_greedy, has_cuts = StaticChoice.way_of(work)
        how, size = (is_greedy, has_cuts, work.rules), len(work.first_slots)
        numbers, is_block = replace(last[1], is_causal=True), work.rules.mask_id is not None
        if first is not None:  # a wider table than it needs
            first = first[0], replace(first[1], bound=numbers.bound)
        most = MAX_CHAIN_REQUESTS if work.rules.width == 1 else self.max_tree_nodes // work.rules.width
        for each in larger_shapes(size, numbers, max(most, size)):
            for num_steps in range(work.num_steps, self._most_steps + 1):
                before = (
                    None
                    if first is None
                    else self._whole(first, each.num_rows, self._most_new or num_steps + 1)
                )
                block = (
                    self._whole(last, each.num_rows, self._block_rows(work, num_steps)) if is_block else None
                )
                yield ChainShape(num_steps, *how, each, before, block)

    def _whole(self, given: Numbered, num_requests: int, most_each: int) -> PassShape:
        """Return the shape of a pass with as many rows as it may have, so that shapes are few."""
        host, numbers = given
        num_rows, most = len(host.token_ids), num_requests * most_each
        return shape_of(most if num_rows <= most <= MAX_TREE_ROWS else num_rows, numbers)

    def _run(self, static: RecordedLoop) -> Tensors:
        def run(step: StaticPass, features: torch.Tensor | None) -> Tensors:
            self._backend.use(step.batch, step.rows)
            return self._run_pass(step.batch, features)

        return static.run(run)

    def _record_loop(self, static: RecordedLoop, outputs: Tensors, num_rows: int) -> None:
        """Record a loop that has run with these outputs."""

        def differ(got: Tensors, expected: Tensors) -> str | None:
            return _wrong(got, expected, num_rows)

        self._record(static.shape, static, lambda: self._run(static), lambda: outputs, differ)


def _wrong(got: Tensors, expected: Tensors, num_rows: int) -> str | None:
    """Return how a replay differs from the loop it repeats; None if it agrees.

    The first tokens come from the same logits, so they must be equal. The logits of the pass over them may differ slightly,
    and so may later tokens where two logits are almost equal.
    """
    if not torch.equal(got[0][:num_rows, 0], expected[0][:num_rows, 0]):
        return "a replay chose other tokens"
    return difference((got[3][:num_rows],), (expected[3][:num_rows],), 0.0) if got[3].shape[1] else None


def _new_pass(
    rows: NewRows, work: ChainWork, device: torch.device, mask_id: int = 0, num_masks: Int64s | None = None
) -> PackedBatch:
    """Return the pass over new tokens, with the logits of each request's last one, and behind them as many masks `[B]`."""
    counts, cached = np.array(rows.counts, np.int64), np.array(work.num_cached, np.int64)
    token_ids, last = rows.token_ids, np.cumsum(counts) - 1
    if num_masks is not None:
        token_ids = np.insert(token_ids, np.repeat(last + 1, num_masks), mask_id)
        counts = counts + num_masks
        last = last + np.cumsum(num_masks) - num_masks
    ends = np.cumsum(counts)
    positions = np.arange(ends[-1]) + np.repeat(cached - ends + counts, counts)
    slots = positions + np.repeat(np.array(work.first_slots, np.int64), counts)
    segments = [
        Segment(end - count, count, slot, before)
        for end, count, slot, before in zip(
            ends.tolist(), counts.tolist(), work.first_slots, work.num_cached, strict=True
        )
    ]
    host = HostRows(token_ids, positions, slots, last)
    return PackedBatch.of_rows(host, segments, device)


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
