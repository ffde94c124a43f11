"""Messages logged once per process: notices about keys without effect, and deprecations."""

from __future__ import annotations

import logging
import sys
import warnings

from specdec.errors import described, is_interrupt

logger = logging.getLogger("specdec")

_said: set[str] = set()


def notice(key: str, message: str) -> None:
    """Log a warning, once per process for each `key`."""
    if key not in _said:
        _said.add(key)
        logger.warning(message)


def draft_ends(what: str, error: BaseException) -> None:
    """Log, once per process for each kind of work, that work along a draft failed, which ends that draft alone.

    Args:
        what: the work.
        error: the exception that is being handled; an interrupt by the user goes on.
    """
    if is_interrupt(error):
        raise error
    notice(
        f"draft:{what}",
        f"{what} along a draft failed: {described(error)}; the draft ends there, its request goes on, and its text is not "
        "affected",
    )


def deprecated(key: str, message: str) -> None:
    """Emit a `DeprecationWarning` that points at the user's line, once per process for each `key`."""
    if key not in _said:
        _said.add(key)
        warnings.warn(message, DeprecationWarning, stacklevel=_frames_of_specdec() + 1)


def reset() -> None:
    """Forget which messages were logged; for tests."""
    _said.clear()


def _frames_of_specdec() -> int:
    depth, frame = 0, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "specdec":
        depth, frame = depth + 1, frame.f_back
    return depth
