"""Constructs and loads a proposer; its own exceptions become errors that name it."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import specdec
from specdec.config import ResolvedSpeculation
from specdec.engine.undisturbed import undisturbed
from specdec.errors import ConfigError, EngineError, ModelError, PluginError, described, is_interrupt
from specdec.interfaces.proposer import Proposer
from specdec.interfaces.target import TargetHandle, TargetInfo

Made = TypeVar("Made")

_OURS = Path(specdec.__file__).parent


def make_proposer(speculation: ResolvedSpeculation, info: TargetInfo) -> tuple[Proposer, list[str]]:
    """Return the configured proposer, not loaded yet, and the settings of the process that it changed; they are put back.

    Raises:
        ConfigError: if the configuration does not fit the target.
        PluginError: if its constructor raises anything else.
    """
    made = speculation.proposer_class
    return _named(made, "__init__", lambda: made(speculation.proposer_config, info))


def load_proposer(proposer: Proposer, target: TargetHandle) -> list[str]:
    """Load a proposer's weights; returns the settings of the process that it changed, which are put back.

    Raises:
        ConfigError: see `make_proposer`.
        ModelError: for weights that cannot be used.
        PluginError: if `load` raises anything else.
    """
    return _named(type(proposer), "load", lambda: proposer.load(target))[1]


def line_of(error: BaseException) -> str:
    """Return where an exception was raised, ` at FILE:LINE`, outside specdec if it passed through other code."""
    try:
        frames = traceback.extract_tb(error.__traceback__)
        others = [frame for frame in frames if not Path(frame.filename).is_relative_to(_OURS)]
        last = (others or frames)[-1:]
        return f" at {last[0].filename}:{last[0].lineno}" if last else ""
    except BaseException as failure:  # the source of a frame may be the plugin's to tell
        if is_interrupt(failure):
            raise
        return ""


def _named(proposer: type[Proposer], what: str, function: Callable[[], Made]) -> tuple[Made, list[str]]:
    try:
        return undisturbed(function)
    except (ConfigError, ModelError, PluginError, EngineError, MemoryError):
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise PluginError(
            f"proposer {proposer.name!r}: {what} raised {described(error)}{line_of(error)}"
        ) from error
