"""The whole draft loop of a runner on the device, without the host between choosing tokens and running them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from weakref import WeakMethod

import numpy as np
import torch

from specdec.interfaces import Chains, ChainWork, HostRows, NewRows, PackedBatch, Segment, done_once
from specdec_kernels.cuda.graphs.pass_graphs import PagedBackend, RunPass, difference
from specdec_kernels.cuda.graphs.pass_shape import MAX_ROWS, PassShape, larger_shapes, padded, shape_of
from specdec_kernels.cuda.graphs.recorder import Recorder, Recording, Tensors
from specdec_kernels.cuda.graphs.recordings import Graphs
from specdec_kernels.cuda.graphs.static_chain import StaticChain
from specdec_kernels.cuda.graphs.static_choice import StaticChoice
from specdec_kernels.cuda.graphs.static_loop import NO_END, NOWHERE, ChainShape, StaticLoop
from specdec_kernels.cuda.graphs.static_pass import StaticPass
from specdec_kernels.cuda.graphs.static_start import Combine, NewRowsStart
from specdec_kernels.cuda.graphs.static_tree import StaticTree
from specdec_kernels.cuda.paged_pass import Int64s, PassNumbers, bound_of
from specdec_kernels.cuda.pass_memory import Judged, PassMemory, Places, take_newest

MAX_CHAIN_REQUESTS = 64
"""Maximum number of requests whose chains are drafted together."""
_TABLE_SIZE = 2**23
"""Most numbers in the tables of a pass over nodes of trees, each of which has its own."""
_SHARE_OF = 4
"""Number of drafts of which the share that follows consists, about."""
_LEAST_FOLLOWED = 0.6
"""The share from which the next draft begins without the host."""
_Pass = tuple[HostRows, PassNumbers]


class ChainGraphs(Graphs[StaticLoop]):
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
        combine: see `DraftHead.combine`; None for a model.
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
        combine: Combine | None = None,
    ) -> None:
        super().__init__("draft loops")
        self._run_pass, self._recorder, self._backend = run, recorder, backend
        self._max_context, self._max_positions = max_context, max_positions
        self._device, self._features, self._combine = device, features, combine
        self._most_steps = 0
        self._most_new = 0
        """New tokens of a request that loops were recorded for at load; 0 if none were, and they are recorded in use."""
        self._verdicts: PassMemory | None = None
        """Where the target's verification leaves its verdicts."""
        self._last: tuple[StaticLoop, ChainWork, Places] | None = None
        """The last replay: its numbers and what was drafted, and where a verdict on that is."""
        self._places: dict[int, Places] = {}
        """Where the last verdict on so many requests was, and the next one is likely to be."""
        self._share_followed = 1.0
        """Of drafts that follow a verdict on the device, recent ones most."""
        self._is_begun = False
        """Whether the draft after the last one is under way already."""

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
        self._verdicts = take_newest(self._device)
        verdicts = None if self._verdicts is None else (self._verdicts.numbers, self._most_new)
        kind = StaticChain if work.rules.width == 1 else StaticTree
        ways = [(True, False), *([] if work.rules.is_drawn else [(False, False)]), (False, True)]
        for size, bound in shapes:
            for is_greedy, has_cuts in ways:
                last = padded(size, size, page_size, bound)
                first = padded(size * self._most_new, size, page_size, bound)
                shape = ChainShape(last, work.num_steps, is_greedy, work.rules, has_cuts, first)
                place = self._max_context, self._max_positions, self._device
                static = kind(shape, *place, self._features, rows.states, self._combine, verdicts)
                self._record(shape, static, self._run(static), last.num_rows)
                if self.failure is not None:
                    return
                if self._verdicts is not None and isinstance(static.start, NewRowsStart):
                    static.start.follow(self._verdicts, Places(0, 0, 0, 0), size)  # which compiles it

    def draft(self, logits: torch.Tensor, states: torch.Tensor | None, work: ChainWork) -> Chains:
        """Return the tokens of each row; see `Runner.draft_chain`."""
        return self._draft(work, (logits,) if states is None else (logits, states))

    def draft_after(self, rows: NewRows, work: ChainWork) -> Chains:
        """Run new rows first, then draft; see `Runner.draft_after`."""
        first = _new_pass(rows, work, self._device)
        assert first.host is not None
        after = [cached + count for cached, count in zip(work.num_cached, rows.counts, strict=True)]
        work = replace(work, num_cached=after)
        return self._draft(work, rows.states, (first.host, self._backend.numbers(first)), rows)

    def _draft(
        self, work: ChainWork, given: Tensors, first: _Pass | None = None, rows: NewRows | None = None
    ) -> Chains:
        """Draft from what is given and, if there is one, a first pass over new rows."""
        last = _last_pass(work, self._device)
        numbers, num_rows = self._backend.numbers(last), len(work.first_slots)
        assert last.host is not None
        self._most_steps = max(self._most_steps, work.num_steps)
        shapes = self._shapes(work, numbers, first)
        shape = next(shapes)
        # More padding costs less than a loop that is not recorded, when requests end one after another.
        found = self._recordings.find(shape) or next(filter(None, map(self._recordings.find, shapes)), None)
        if found is None:
            features = self._features if first is not None else given[1] if len(given) > 1 else None
            place = self._max_context, self._max_positions, self._device
            kind = StaticChain if work.rules.width == 1 else StaticTree
            static: StaticLoop = kind(shape, *place, features, given, self._combine)
        else:
            static = found[0]
        judged = None if self._verdicts is None else self._verdicts.judged
        if judged is not None:
            self._places[len(judged.num_accepted)] = judged.places
        places = self._places.get(num_rows, NOWHERE)
        follows = rows is not None and judged is not None and self._follows(static, judged, rows, work)
        is_begun, self._is_begun = self._is_begun and follows, False
        if self._last is not None:
            self._share_followed += (follows - self._share_followed) / _SHARE_OF
        if not follows:
            static.send(last.host, numbers, work, first, places)
        if not is_begun:
            static.start.fill(given)
        self._last = None if found is None or rows is None else (static, work, places)
        if found is not None:
            if not is_begun:
                found[1].replay()
                self.num_replays += 1
            if self._verdicts is not None:
                self._verdicts.next_loop = _weakly(self)
            return _drafted(found[1].outputs, num_rows, work)
        outputs = self._run(static)
        self.num_plain += 1
        is_due = not (self._most_new and first is not None) and self._recordings.is_due(shape)
        if is_due and bool(outputs[3].isfinite().all()):
            self._record(shape, static, outputs, num_rows)
        return _drafted(outputs, num_rows, work)

    def begin_next(self, places: Places, num_nodes: Sequence[int]) -> None:
        """Replay the loop for the draft after the last one, once a verdict on that is on its way.

        It is done, or well under way, when the host has that verdict and asks for the draft. If it then asks for another one,
        this was for nothing, which is risked where drafts mostly follow each other and no text may reach its most tokens.

        Args:
            places: where the verdict is.
            num_nodes: nodes of each of its requests; some may be of another proposer, beside this one.
        """
        size = len(num_nodes)
        memory, last, self._places[size] = self._verdicts, self._last, places
        if memory is None or last is None or self._is_begun or self._share_followed < _LEAST_FOLLOWED:
            return
        static, work, expected = last
        found = self._recordings.find(static.shape)
        if found is None or not work.has_room or places != expected or size != len(work.num_cached):
            return
        depths = _depths(work)
        if (np.array(num_nodes) > depths).any():
            return  # there is no room for what may be emitted
        if not (np.array(work.ends or [NO_END]) - work.keys.positions > depths + 1).all():
            return
        bounds = static.shape.last.max_context_len, self._max_context, self._max_positions
        if (np.array(work.num_cached) + depths + 1 + work.num_steps).max() > min(bounds):
            return  # the host may need a wider table
        if isinstance(static.start, NewRowsStart) and static.start.follow(memory, places, size):
            found[1].replay()
            self.num_replays += 1
            self._is_begun = True

    def _follows(self, static: StaticLoop, judged: Judged, rows: NewRows, work: ChainWork) -> bool:
        """Return whether the numbers of a loop are those of its last replay, advanced by a verdict that is on the device."""
        if self._last is None or len(judged.num_accepted) != len(work.num_cached):
            return False
        same, last, places = self._last
        if same is not static or places != judged.places or _lasting(last) != _lasting(work):
            return False
        counts, depths = np.array(judged.num_accepted), _depths(last)
        room = np.array(work.ends or [NO_END]) - work.keys.positions - 1
        if not depths.all() or not np.array_equal(_depths(work), np.maximum(np.minimum(depths, room), 1)):
            return False
        num_left = np.minimum(counts, np.maximum(depths + 1 - self._most_new, 0))
        emitted = zip(judged.token_ids, num_left.tolist(), counts.tolist(), strict=True)
        new = [row[start : count + 1] for row, start, count in emitted]
        return (
            list(map(len, new)) == [*rows.counts]
            and list(chain.from_iterable(new)) == rows.token_ids.tolist()
            and np.array_equal(work.num_cached, np.array(last.num_cached) + counts + 1)
            and np.array_equal(work.keys.positions, last.keys.positions + counts + 1)
        )

    def _shapes(self, work: ChainWork, numbers: PassNumbers, first: _Pass | None) -> Iterator[ChainShape]:
        """Yield the shapes of which a recording drafts these chains, those with little padding first."""
        is_greedy, has_cuts = StaticChoice.way_of(work)
        how = is_greedy, work.rules, has_cuts
        most = MAX_CHAIN_REQUESTS if work.rules.width == 1 else self.max_tree_nodes // work.rules.width
        for last in larger_shapes(len(work.first_slots), numbers, max(most, len(work.first_slots))):
            for num_steps in range(work.num_steps, self._most_steps + 1):
                for before in (
                    [None] if first is None else self._first_shapes(first, last.num_rows, num_steps)
                ):
                    yield ChainShape(last, num_steps, *how, before)

    def _first_shapes(self, first: _Pass, num_rows: int, num_steps: int) -> list[PassShape]:
        """Return the shapes of passes over new tokens: as many as there may be, so that they are few."""
        host, numbers = first
        num_new, most = len(host.token_ids), num_rows * (self._most_new or num_steps + 1)
        return [shape_of(most if num_new <= most <= MAX_ROWS else num_new, numbers)]

    def _run(self, static: StaticLoop) -> Tensors:
        def run(step: StaticPass, features: torch.Tensor | None) -> Tensors:
            self._backend.use(step.batch, step.rows)
            return self._run_pass(step.batch, features)

        return static.run(run)

    def _record(self, shape: ChainShape, static: StaticLoop, expected: Tensors, num_rows: int) -> None:
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


def _weakly(graphs: ChainGraphs) -> Callable[[Places, Sequence[int]], None]:
    """Return `begin_next`, without keeping the graphs."""
    method = WeakMethod(graphs.begin_next)

    def begin_next(places: Places, num_nodes: Sequence[int]) -> None:
        begin = method()
        if begin is not None:
            begin(places, num_nodes)

    return begin_next


def _lasting(work: ChainWork) -> tuple[object, ...]:
    """Return what a verdict changes nothing of."""
    settings = [*work.first_slots], [*work.temperatures], [*work.cuts], [*work.ends], id(work.rules)
    return *settings, work.keys.seeds.tolist(), work.keys.samples.tolist()


def _depths(work: ChainWork) -> Int64s:
    return np.array(work.depths or [work.num_steps] * len(work.num_cached))


def _wrong(got: Tensors, expected: Tensors, num_rows: int) -> str | None:
    """Return how a replay differs from the loop it repeats; None if it agrees.

    The first tokens come from the same logits, so they must be equal. The logits of the pass over them may differ slightly,
    and so may later tokens where two logits are almost equal.
    """
    if not torch.equal(got[0][:num_rows, 0], expected[0][:num_rows, 0]):
        return "a replay chose other tokens"
    return difference((got[3][:num_rows],), (expected[3][:num_rows],), 0.0) if got[3].shape[1] else None


def _new_pass(rows: NewRows, work: ChainWork, device: torch.device) -> PackedBatch:
    """Return the pass over new tokens, with the logits of each request's last one."""
    counts, cached = np.array(rows.counts, np.int64), np.array(work.num_cached, np.int64)
    ends = np.cumsum(counts)
    positions = np.arange(ends[-1]) + np.repeat(cached - ends + counts, counts)
    slots = positions + np.repeat(np.array(work.first_slots, np.int64), counts)
    segments = [
        Segment(end - count, count, slot, before)
        for end, count, slot, before in zip(
            accumulate(rows.counts), rows.counts, work.first_slots, work.num_cached, strict=True
        )
    ]
    host = HostRows(rows.token_ids, positions, slots, ends - 1)
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


def _drafted(outputs: Tensors, num_rows: int, work: ChainWork) -> Chains:
    """Return the drafts, ids with those of padding, which cost nothing."""
    ids, confidences, others, _ = (output[:num_rows] for output in outputs)
    if work.rules.width > 1:
        return Chains(ids, confidences, confidences[:, :0, None], parents=others)
    steps = slice(None if work.depths else work.num_steps)
    return Chains(ids[:, steps], confidences[:, steps], others[:, steps])
