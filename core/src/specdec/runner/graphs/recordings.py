"""Recordings of one kind: made when a shape comes again, the least used given up."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from specdec.runner.graphs.recorder import Recording

logger = logging.getLogger("specdec")

MAX_RECORDINGS = 48
"""Recordings of one kind that are kept."""
MAX_BYTES = 2**29
"""Device memory that they may hold; their outputs are the most of it, and of these logits."""


class Place(Protocol):
    """Tensors that a recording reads."""

    @property
    def num_bytes(self) -> int:
        """Memory of the largest of them."""


P = TypeVar("P", bound=Place)


class Recordings(Generic[P]):
    """What has been recorded, by shape.

    Args:
        what: what is recorded, for the warning that it is not.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._kept: OrderedDict[Hashable, tuple[P, Recording]] = OrderedDict()
        self._seen: set[Hashable] = set()
        self.failure: str | None = None
        """Why nothing is recorded any more; None while all is well."""
        self.count = 0
        """Recordings that are kept; a plain number, since metrics are read by other threads."""
        self.num_bytes = 0
        """Device memory that they hold, likewise."""

    def find(self, shape: Hashable) -> tuple[P, Recording] | None:
        """Return the recording of a shape and what it reads, if there is one."""
        found = self._kept.get(shape)
        if found is not None:
            self._kept.move_to_end(shape)
        return found

    def is_due(self, shape: Hashable) -> bool:
        """Return whether a shape that has no recording is to have one: it has been asked for before."""
        if self.failure is not None:
            return False
        is_known = shape in self._seen
        self._seen.add(shape)
        return is_known

    def keep(self, shape: Hashable, place: P, recording: Recording) -> None:
        """Keep a new recording, and give up those that were used least where there are too many."""
        self._kept[shape] = place, recording
        self._count()
        while self.count > MAX_RECORDINGS or (self.num_bytes > MAX_BYTES and self.count > 1):
            dropped, _ = self._kept.popitem(last=False)
            self._seen.discard(dropped)
            self._count()

    def fail(self, reason: str) -> None:
        """Give up recording, and say why, once."""
        self.failure = reason
        self._kept.clear()
        self._count()
        logger.warning("%s are not captured in graphs and run operation by operation: %s", self._what, reason)

    def _count(self) -> None:
        self.count = len(self._kept)
        self.num_bytes = sum(
            place.num_bytes + recording.num_bytes for place, recording in self._kept.values()
        )


class Graphs(Generic[P]):
    """What replays one thing, and counts.

    Args:
        what: see `Recordings`.
    """

    def __init__(self, what: str) -> None:
        self._recordings: Recordings[P] = Recordings(what)
        self.num_replays = 0
        self.num_plain = 0
        """How often it ran operation by operation."""

    @property
    def failure(self) -> str | None:
        """Why nothing is recorded any more; None while all is well."""
        return self._recordings.failure

    @property
    def num_recordings(self) -> int:
        """Recordings that are kept."""
        return self._recordings.count

    @property
    def num_bytes(self) -> int:
        """Device memory that they hold."""
        return self._recordings.num_bytes
