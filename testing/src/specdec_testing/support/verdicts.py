"""Outcomes of the kit's tests other than passing."""

from __future__ import annotations

import re
from typing import NoReturn

import pytest

from specdec_testing.support.origin import origin

NOT_APPLICABLE = "not applicable: "
"""Prefix of the reason of a skipped test."""
_RAISED_AT = re.compile(r"\braised \w+.*\[(\S+:\d+)\]")
_NO_DRAFT = re.compile(r"propose returned \w+, not a Draft|\bDraft\.\w+ (is|has) ")


def broken(reason: str) -> NoReturn:
    """Fail the running test with a one-line reason and no traceback through the kit."""
    pytest.fail(reason, pytrace=False)


def not_applicable(reason: str) -> NoReturn:
    """Skip the running test because the plugin does not declare what it tests; the reason is reported."""
    pytest.skip(NOT_APPLICABLE + reason)


def described(error: BaseException) -> str:
    """Return an exception as one line, with the plugin's line that raised it."""
    text, place = " ".join(str(error).split()), origin(error)
    line = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return line if place is None else f"{line} [{place}]"


def advice(reason: str, fix: str) -> str:
    """Return what to fix for a broken promise: an exception that the plugin raised or a draft that is none comes first."""
    if _NO_DRAFT.search(reason):
        return "what propose returns, see specdec.interfaces.Draft; this promise can be judged once it returns drafts"
    place = _RAISED_AT.search(reason)
    return (
        fix if place is None else f"what {place[1]} raises; this promise can be judged once it raises nothing"
    )
