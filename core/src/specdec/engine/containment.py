"""Ends a sample whose own work on the CPU fails: its text, stops, log probabilities, rules or output."""

from __future__ import annotations

import logging
from types import TracebackType

from specdec.engine.request import Request
from specdec.engine.sequence import Sequence
from specdec.errors import described, is_interrupt
from specdec.interfaces.finish import FinishReason
from specdec.outputs import RequestOutput

logger = logging.getLogger("specdec")


class Contained:
    """A context in which an exception ends one sample with finish reason `error`, and nothing else.

    Args:
        sequence: the sample.
        what: the work, for the reason.
    """

    __slots__ = ("_sequence", "_what")

    def __init__(self, sequence: Sequence, what: str) -> None:
        self._sequence, self._what = sequence, what

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None or is_interrupt(error):
            return False
        reason = f"{self._what} failed: {described(error)}"
        fail(self._sequence, reason)
        logger.error("request %s ends: %s", self._sequence.request_id, reason, exc_info=error)
        return True


def fail(sequence: Sequence, reason: str) -> None:
    """End a sample with finish reason `error`."""
    sequence.finish_reason, sequence.stop_reason = FinishReason.ERROR, reason


def output_of(request: Request) -> RequestOutput:
    """Return a request's output; if it cannot be built, all its samples end, and the output is their tokens and the reason."""
    try:
        return request.output()
    except BaseException as error:
        if is_interrupt(error):
            raise
        reason = f"building the output failed: {described(error)}"
        for sequence in request.sequences:
            fail(sequence, reason)
        logger.error("request %s ends: %s", request.request_id, reason, exc_info=error)
        return request.failed_output(reason)
