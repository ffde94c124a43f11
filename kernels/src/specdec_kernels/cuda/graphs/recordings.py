"""Recordings of one kind: made at load, or when a shape is used again, and evicted least recently used first."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import ClassVar, Generic, Protocol, TypeVar

from specdec.interfaces import one_time_work
from specdec_kernels.cuda.graphs.recorder import Recorder, Recording, Tensors

logger = logging.getLogger("specdec")

MAX_RECORDINGS = 384
"""Maximum number of recordings of one kind."""
MAX_BYTES = 2**29
"""Device memory that they may hold."""


class StaticInputs(Protocol):
    """Tensors that a recording reads."""

    recording: Recording
    """Once there is one."""

    @property
    def num_bytes(self) -> int:
        """Memory of the largest of these tensors."""


P = TypeVar("P", bound=StaticInputs)


class Graphs(Generic[P]):
    """Base class of objects that replay recordings of one kind, by shape, and count replays.

    Args:
        what: what is recorded, named in the warning if recording fails.
        recorder: the device's recorder.
    """

    contained: ClassVar[type[Exception]] = RuntimeError
    """What ends recording, and no more: what cannot be recorded, or has no room. A kernel that does not compile raises."""

    def __init__(self, what: str, recorder: Recorder) -> None:
        self._what, self._recorder = what, recorder
        self._kept: OrderedDict[Hashable, P] = OrderedDict()
        self._seen: set[Hashable] = set()
        self.failure: str | None = None
        """Why nothing is recorded any more; None if recording works."""
        self.num_recordings = 0
        """Number of recordings held; a plain number, because other threads read the metrics."""
        self._recorded_bytes = 0
        self.num_replays = 0
        self.num_plain = 0
        """Number of eager runs."""

    @property
    def num_bytes(self) -> int:
        """Device memory that the recordings hold."""
        return self._recorded_bytes

    def _find(self, shape: Hashable) -> P | None:
        """Return what is recorded of a shape, or None."""
        found = self._kept.get(shape)
        if found is not None:
            self._kept.move_to_end(shape)
        return found

    def _is_due(self, shape: Hashable) -> bool:
        """Return whether to record a shape that has no recording: true if the shape was requested before."""
        if self.failure is not None:
            return False
        is_known = shape in self._seen
        self._seen.add(shape)
        return is_known

    def _record(
        self,
        shape: Hashable,
        place: P,
        run: Callable[[], Tensors],
        first: Callable[[], Tensors],
        differ: Callable[[Tensors, Tensors], str | None],
    ) -> P | None:
        """Record a run and compare one replay of it; None if that fails, after which nothing is recorded any more.

        All runs write the same values to the cache.

        Args:
            shape: what it is found by.
            place: the tensors that it reads.
            run: what is recorded.
            first: runs the same eagerly, before.
            differ: returns how a replay's outputs differ from those of `first`; None if they agree.
        """
        with one_time_work():
            try:
                expected = first()
                recording = self._recorder.record(run)
                recording.replay()
                wrong = differ(recording.outputs, expected)
            except self.contained as error:
                wrong = f"{type(error).__name__}: {error}"
        if wrong is not None:
            self.failure = wrong
            self._kept.clear()
            self._count()
            logger.warning(
                "%s are not captured in graphs and run operation by operation: %s", self._what, wrong
            )
            return None
        place.recording, self._kept[shape] = recording, place
        self._count()
        # The least recently used ones make room.
        while self.num_recordings > MAX_RECORDINGS or (
            self._recorded_bytes > MAX_BYTES and self.num_recordings > 1
        ):
            self._seen.discard(self._kept.popitem(last=False)[0])
            self._count()
        return place

    def _count(self) -> None:
        self.num_recordings = len(self._kept)
        self._recorded_bytes = sum(
            place.num_bytes + place.recording.num_bytes for place in self._kept.values()
        )
