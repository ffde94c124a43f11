"""Draft loops that take the numbers of their next draft from the verdict on the last one."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import numpy as np

from specdec.interfaces import NeedsTokens, PassMemory, VerdictOffsets
from specdec_kernels.cuda.graphs.loop_table import NO_END, NOWHERE
from specdec_kernels.cuda.graphs.recorder import Recorder, Tensors
from specdec_kernels.cuda.graphs.recordings import Graphs, StaticInputs
from specdec_kernels.cuda.graphs.static_start import Start
from specdec_kernels.cuda.paged_pass import Int64s
from specdec_runtime.interfaces import Chains, ChainWork


class Loop(StaticInputs, Protocol):
    """The tensors of a recorded loop."""

    @property
    def shape(self) -> Any:
        """What it was recorded for."""

    @property
    def start(self) -> Start:
        """What it starts from."""


L = TypeVar("L", bound=Loop)


class LoopGraphs(Graphs[L]):
    """Recorded loops whose tables keep what they were sent of some requests: first slots, ends, how each chooses.

    The first operation of a loop makes the numbers of the next draft of these requests from the verdict on the last one, which
    is on the device, whether the host has read it or not. Numbers are sent where a request is new or has moved, where it is to
    draft deeper than its table says, and where the verdict is not on the device, or not where it was expected.

    Args:
        what: see `Graphs`.
        recorder: the device's recorder.
    """

    def __init__(self, what: str, recorder: Recorder) -> None:
        super().__init__(what, recorder)
        self._most_new = 0
        """New tokens of a request that loops were recorded for at load; 0 if none were, and they are recorded in use."""
        self._verdicts: PassMemory | None = None
        """Where the target's verification leaves its verdicts."""
        self._last: tuple[L, ChainWork] | None = None
        """The last loop that was replayed, the requests in its table, and how deep it drafts for them."""
        self._expected = NOWHERE
        """Where that loop looks for the verdict on its draft."""
        self._places: dict[int, VerdictOffsets] = {}
        """Where the last verdict on so many requests was, and the next one is likely to be."""

    @abstractmethod
    def _most_rows(self, loop: L) -> int:
        """Return the most rows that a request may have in the cache when a loop has taken a verdict."""

    def _replay_behind(self, work: ChainWork) -> Tensors | None:
        """Replay the last loop behind a verdict; returns its outputs, None if numbers have to be sent.

        Raises:
            NeedsTokens: if numbers have to be sent, and the host does not know them.
        """
        memory, verdict, size = self._verdicts, work.verdict, len(work.num_cached)
        if verdict is not None and memory is not None and self._last is not None:
            loop, last = self._last
            depths = self._depths_behind(loop, last, work)
            # A loop that was evicted, or recorded anew, has no numbers.
            is_known = depths is not None and self._find(loop.shape) is loop
            if depths and is_known and loop.start.fill_from_verdict(memory, verdict, size):
                self._last = loop, replace(work, depths=depths)
                return self._replayed(loop)
        if verdict is not None:
            self._places[size] = verdict
        if work.is_unread:
            raise NeedsTokens
        return None

    def _depths_behind(self, loop: L, last: ChainWork, work: ChainWork) -> list[int] | None:
        """Return how deep the last loop drafts behind a verdict; None if its table is not that of these requests."""
        # A verdict that was followed before the host had read it is not followed again.
        is_next = work.verdict == self._expected and (work.is_unread or not last.is_unread)
        if not is_next or [*work.first_slots] != [*last.first_slots]:
            return None
        room = np.array(work.ends or [NO_END]) - work.keys.positions - 1
        depths = np.maximum(np.minimum(depths_of(last), room), 1)
        # A deeper chain is cut; a tree chooses its nodes by its depth.
        is_chain, wanted = max(work.rules.width, work.rules.siblings) == 1, depths_of(work)
        is_deep = depths >= wanted if is_chain or work.is_unread else depths == wanted
        num_rows = np.array(work.num_cached) + (depths + 1 if work.is_unread else 0)
        return depths.tolist() if is_deep.all() and num_rows.max() <= self._most_rows(loop) else None

    def _follow(self, loop: L, work: ChainWork) -> VerdictOffsets:
        """Let a loop draft with numbers of the host, to be sent with what is returned: where the verdict is expected."""
        self._last, self._expected = (loop, work), self._places.get(len(work.num_cached), NOWHERE)
        return self._expected

    def _replayed(self, loop: L) -> Tensors:
        loop.recording.replay()
        self.num_replays += 1
        return loop.recording.outputs


def depths_of(work: ChainWork) -> Int64s:
    """Return `[B]` how deep each draft may be."""
    return np.array(work.depths or [work.num_steps] * len(work.num_cached))


def drafted(outputs: Tensors, num_rows: int, work: ChainWork) -> Chains:
    """Return the drafts of the first rows from what a loop returns, ids, confidences, and q or parents."""
    ids, confidences, others = (output[:num_rows] for output in outputs[:3])
    if max(work.rules.width, work.rules.siblings) > 1:
        return Chains(ids, confidences, confidences[:, :0, None], parents=others)
    steps = slice(None if work.depths else work.num_steps)
    return Chains(ids[:, steps], confidences[:, steps], others[:, steps])
