"""How a test of the kit ends that does not simply pass."""

from __future__ import annotations

import re
from typing import NoReturn

import pytest

from specdec.testing.support.origin import origin

NOT_APPLICABLE = "not applicable: "
"""Begins the reason of a skipped test."""
_RAISED_AT = re.compile(r"\braised \w+.*\[(\S+:\d+)\]")


def broken(reason: str) -> NoReturn:
    """Fail the running test, with a reason of one line and no traceback through the kit."""
    pytest.fail(reason, pytrace=False)


def not_applicable(reason: str) -> NoReturn:
    """End the running test as one that asks for what the plugin does not claim; it shows up as skipped, with the reason."""
    pytest.skip(NOT_APPLICABLE + reason)


def described(error: BaseException) -> str:
    """Return an exception as one line, with the line of the plugin that it came from."""
    text, place = " ".join(str(error).split()), origin(error)
    line = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return line if place is None else f"{line} [{place}]"


def advice(reason: str, mend: str) -> str:
    """Return what to mend for a broken promise: first of all what the plugin raised, if the reason says so."""
    place = _RAISED_AT.search(reason)
    return (
        mend
        if place is None
        else f"what {place[1]} raises; this promise can be judged once it raises nothing"
    )
