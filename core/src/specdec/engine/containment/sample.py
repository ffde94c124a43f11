"""Ends a sample whose own work on the CPU fails: its text, stops, log probabilities, rules or output."""

from __future__ import annotations

import logging

from specdec.engine.request import Request
from specdec.engine.sequence import Sequence
from specdec.errors import ConfigError, described, is_interrupt
from specdec.interfaces.finish import FinishReason
from specdec.outputs import RequestOutput

logger = logging.getLogger("specdec")


def contain(sequence: Sequence, what: str, error: BaseException) -> None:
    """End one sample with finish reason `error`, and nothing else, for the exception that is being handled.

    Args:
        sequence: the sample.
        what: the work that raised it, for the reason.
        error: the exception; an interrupt by the user goes on.
    """
    if is_interrupt(error):
        raise error
    fail(sequence, f"{what} failed: {described(error)}", error)


def fail(sequence: Sequence, reason: str, cause: BaseException | None = None) -> None:
    """End a sample with finish reason `error`.

    Args:
        sequence: the sample.
        reason: why.
        cause: the exception, for the log; a `ConfigError` says that the request is at fault.
    """
    sequence.finish_reason, sequence.stop_reason = FinishReason.ERROR, reason
    sequence.is_refused = isinstance(cause, ConfigError)
    if sequence.is_refused:
        logger.info("request %s ends: %s", sequence.request_id, reason)
    elif cause is not None:
        logger.error("request %s ends: %s", sequence.request_id, reason, exc_info=cause)


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
