"""Locates the line of a plugin's code that raised an exception."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

import _pytest
import pluggy
import torch

import specdec
import specdec_testing

_NOT_A_PLUGIN = tuple(
    Path(str(module.__file__)).parent for module in (specdec, specdec_testing, torch, _pytest, pluggy)
)
_STANDARD = Path(sysconfig.get_path("stdlib"))


def origin(error: BaseException) -> str | None:
    """Return file and line (`my_idea.py:12`) of the deepest call in the plugin's folder; None if no plugin was called.

    Args:
        error: the exception; if it has a `__cause__`, the cause is used.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    frames = [
        (Path(frame.filename), frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if not _is_elsewhere(Path(frame.filename))
    ]
    if not frames:
        return None
    home = frames[0][0].parent
    file, line = next(frame for frame in reversed(frames) if frame[0].parent == home)
    return f"{file.name}:{line}"


def _is_elsewhere(file: Path) -> bool:
    """Return whether a file belongs to specdec, torch, pytest or Python."""
    is_standard = file.is_relative_to(_STANDARD) and "site-packages" not in file.parts
    return is_standard or not file.is_absolute() or any(file.is_relative_to(home) for home in _NOT_A_PLUGIN)
