"""How a test of the kit ends that does not simply pass."""

from __future__ import annotations

from typing import NoReturn

import pytest

NOT_APPLICABLE = "not applicable: "
"""Begins the reason of a skipped test."""


def broken(reason: str) -> NoReturn:
    """Fail the running test, with a reason of one line and no traceback through the kit."""
    pytest.fail(reason, pytrace=False)


def not_applicable(reason: str) -> NoReturn:
    """End the running test as one that asks for what the plugin does not claim; it shows up as skipped, with the reason."""
    pytest.skip(NOT_APPLICABLE + reason)


def described(error: BaseException) -> str:
    """Return an exception as one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
