"""Draft loops that go on from the verdict on their last draft, without the host."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Protocol, TypeVar
from weakref import WeakMethod

import numpy as np

from specdec.interfaces import LastVerdict, PassMemory, PrelaunchedDraft, VerdictOffsets
from specdec_kernels.cuda.graphs.loop_table import NO_END, NOWHERE
from specdec_kernels.cuda.graphs.recorder import Recorder, Recording, Tensors
from specdec_kernels.cuda.graphs.recordings import Graphs, StaticInputs
from specdec_kernels.cuda.paged_pass import Int64s
from specdec_runtime.interfaces import ChainWork, NewRows

_SHARE_OF = 4
"""Number of drafts of which the share that follows consists, about."""
_LEAST_CONTINUED = 0.6
"""The share from which the next draft begins without the host."""


class LoopStart(Protocol):
    """What a loop starts from."""

    def fill_from_verdict(self, memory: PassMemory, offsets: VerdictOffsets, size: int) -> bool:
        """See `Start.fill_from_verdict`."""


class Loop(StaticInputs, Protocol):
    """The tensors of a recorded loop."""

    @property
    def shape(self) -> Any:
        """What it was recorded for."""

    @property
    def start(self) -> LoopStart:
        """What it starts from."""


L = TypeVar("L", bound=Loop)


class PrelaunchGraphs(Graphs[L]):
    """Recorded loops whose next draft needs no numbers of the host if it follows the verdict on the last one.

    It then begins as soon as that verdict is on its way, without waiting for the host to read it (`launch_next`). The host then
    either asks for it (`_replay_or_reuse`), once it has read the verdict; or verifies it before (`_take`), and the draft behind
    it may begin too; then it is asked for while that runs, and the answer is dropped.

    Args:
        what: see `Recordings`.
        recorder: the device's recorder.
    """

    def __init__(self, what: str, recorder: Recorder) -> None:
        super().__init__(what, recorder)
        self._most_new = 0
        """New tokens of a request that loops were recorded for at load; 0 if none were, and they are recorded in use."""
        self._verdicts: PassMemory | None = None
        """Where the target's verification leaves its verdicts."""
        self._last: tuple[L, ChainWork, VerdictOffsets] | None = None
        """The last replay: its numbers and what was drafted, and where the verdict on it is."""
        self._offsets: dict[int, VerdictOffsets] = {}
        """Where the last verdict on so many requests was, and the next one is likely to be."""
        self._share_continued = 1.0
        """Of drafts that follow a verdict on the device, recent ones most."""
        self._num_prelaunched = 0
        """How many drafts after the last one are under way already, or done."""
        self._is_taken = False
        """Whether the first of these is verified before the host asks for it."""

    @abstractmethod
    def _has_room_behind(self, static: L, work: ChainWork, depths: Int64s) -> bool:
        """Return whether the loop can draft whatever of a draft of these depths is accepted."""

    def _is_emitted(self, last_verdict: LastVerdict, rows: NewRows, depths: Int64s) -> bool:
        """Return whether new rows are those that a verdict on a draft of these depths emits."""
        counts = np.array(last_verdict.num_accepted)
        num_left = np.minimum(counts, np.maximum(depths + 1 - self._most_new, 0))
        emitted = zip(last_verdict.token_ids, num_left.tolist(), counts.tolist(), strict=True)
        new = [row[start : count + 1] for row, start, count in emitted]
        return (
            list(map(len, new)) == [*rows.counts]
            and list(chain.from_iterable(new)) == rows.token_ids.tolist()
        )

    def _replay_or_reuse(
        self,
        found: tuple[L, Recording],
        send: Callable[[VerdictOffsets], None],
        fill: Callable[[LastVerdict | None], None],
        rows: NewRows | None,
        work: ChainWork,
    ) -> Tensors:
        """Replay a loop, unless that was done already; returns its outputs.

        Args:
            found: the loop.
            send: sends its numbers, if they do not follow, for a verdict at some place.
            fill: fills what it starts from; after which verdict, if it follows one.
            rows: new tokens that it begins with; None if it begins with logits.
            work: what to draft, with the rows that are in the cache when the loop begins.
        """
        static, recording = found
        memory = self._verdicts
        last_verdict = None if memory is None else memory.last_verdict
        if last_verdict is not None:
            self._offsets[len(last_verdict.num_accepted)] = last_verdict.offsets
        offsets = self._offsets.get(len(work.num_cached), NOWHERE)
        # A draft that follows finds its numbers on the device, where its own first operation advances them.
        is_continuation = (
            rows is not None
            and last_verdict is not None
            and self._is_continuation(static, last_verdict, rows, work)
        )
        is_prelaunched, is_taken = self._num_prelaunched > 0 and is_continuation, self._is_taken
        self._num_prelaunched, self._is_taken = (self._num_prelaunched - 1 if is_prelaunched else 0), False
        if self._last is not None:
            self._share_continued += (is_continuation - self._share_continued) / _SHARE_OF
        self._last = None if rows is None else (static, work, offsets)
        if not is_continuation:
            send(offsets)
        if not is_prelaunched:
            fill(last_verdict if is_continuation else None)
            recording.replay()
            self.num_replays += 1
        # A taken draft is the one that is being verified; the one that has begun behind it stays.
        if memory is not None and not (is_taken and is_prelaunched):
            memory.prelaunched_draft = None
        # Verification of this draft may begin the next one.
        if memory is not None and not is_taken:
            memory.next_loop = _weakly(self)
        return recording.outputs

    def launch_next(self, offsets: VerdictOffsets, num_nodes: Sequence[int]) -> None:
        """Replay the loop for the draft after the last one, once a verdict on that is on its way.

        It is done, or well under way, when the host has that verdict and asks for the draft. If it then asks for another one,
        this was for nothing, which is risked where drafts mostly follow each other and no text may reach its most tokens.

        Args:
            offsets: where the verdict is.
            num_nodes: nodes of each of its requests; some may be of another proposer, beside this one, unless they are trees.
        """
        size = len(num_nodes)
        memory, last, self._offsets[size] = self._verdicts, self._last, offsets
        num_prelaunched = self._num_prelaunched
        if (
            memory is None
            or last is None
            or num_prelaunched > self._is_taken
            or self._share_continued < _LEAST_CONTINUED
        ):
            return
        static, work, expected = last
        found = self._recordings.find(static.shape)
        if found is None or not work.has_room or offsets != expected or size != len(work.num_cached):
            return
        depths, count = depths_of(work), work.rules.siblings
        if not depths.all() or (offsets.nodes < 0 and (np.array(num_nodes) > depths).any()):
            return  # there is no room for what may be emitted
        # Siblings are so many nodes of each depth; the host wants fewer, and of fewer depths, where a text is about to end.
        most_nodes = depths * count if count > 1 else 0
        # What the drafts that have begun may add the host does not know.
        num_left = np.array(work.ends or [NO_END]) - work.keys.positions - num_prelaunched * (depths + 1)
        if not (num_left > depths + 1 + most_nodes).all():
            return
        behind = depths + num_prelaunched * (depths + 1)
        if self._has_room_behind(static, work, behind) and static.start.fill_from_verdict(
            memory, offsets, size
        ):
            found[1].replay()
            self.num_replays += 1
            self._num_prelaunched += 1
            memory.prelaunched_draft = PrelaunchedDraft(found[1].outputs[0], depths.tolist(), self._take)

    def _take(self) -> None:
        """Note that the draft which has begun is verified next; the one behind it may then begin."""
        self._is_taken = True
        if self._verdicts is not None:
            self._verdicts.prelaunched_draft, self._verdicts.next_loop = None, _weakly(self)

    def _is_continuation(self, static: L, last_verdict: LastVerdict, rows: NewRows, work: ChainWork) -> bool:
        """Return whether the numbers of a loop are those of its last replay, advanced by a verdict that is on the device."""
        if self._last is None or len(last_verdict.num_accepted) != len(work.num_cached):
            return False
        same, last, offsets = self._last
        if (
            same is not static
            or offsets != last_verdict.offsets
            or _fixed_settings(last) != _fixed_settings(work)
        ):
            return False
        counts, depths = np.array(last_verdict.num_accepted), depths_of(last)
        room = np.array(work.ends or [NO_END]) - work.keys.positions - 1
        if not depths.all() or not np.array_equal(depths_of(work), np.maximum(np.minimum(depths, room), 1)):
            return False
        return (
            bool((counts <= depths).all())
            and self._is_emitted(last_verdict, rows, depths)
            and np.array_equal(work.num_cached, np.array(last.num_cached) + counts + 1)
            and np.array_equal(work.keys.positions, last.keys.positions + counts + 1)
        )


def depths_of(work: ChainWork) -> Int64s:
    """Return `[B]` how deep each draft may be."""
    return np.array(work.depths or [work.num_steps] * len(work.num_cached))


def _weakly(graphs: PrelaunchGraphs[Any]) -> Callable[[VerdictOffsets, Sequence[int]], None]:
    """Return `launch_next`, without keeping the graphs."""
    method = WeakMethod(graphs.launch_next)

    def launch_next(offsets: VerdictOffsets, num_nodes: Sequence[int]) -> None:
        begin = method()
        if begin is not None:
            begin(offsets, num_nodes)

    return launch_next


def _fixed_settings(work: ChainWork) -> tuple[object, ...]:
    """Return what a verdict changes nothing of."""
    settings = [*work.first_slots], [*work.temperatures], [*work.cuts], [*work.ends], id(work.rules)
    return *settings, work.keys.seeds.tolist(), work.keys.samples.tolist()
