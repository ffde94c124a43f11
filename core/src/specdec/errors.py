"""The errors that specdec raises: those that the user can fix, and a stopped engine. How errors of plugins are shown."""

from __future__ import annotations

import threading
import traceback
from pathlib import Path

__all__ = [
    "ConfigError", "ContextLengthError", "EngineError", "ModelError", "PluginError", "described", "is_interrupt", "line_of",
]  # fmt: skip

_OURS = Path(__file__).parent


class ConfigError(ValueError):
    """Invalid configuration, argument or sampling parameter; the message names it and the remedy."""


class ContextLengthError(ConfigError):
    """The prompt, or the prompt and its output, are longer than the context window."""

    code = "context_length_exceeded"
    """OpenAI's code of the error."""


class PluginError(RuntimeError):
    """A requested plugin cannot be used; the message names distribution, version and cause."""


class ModelError(ValueError):
    """A model cannot be served correctly; the message says why and what would work."""


class EngineError(RuntimeError):
    """The engine cannot run: it was shut down, it failed (`__cause__` is the failure), or this process is a fork."""


def is_interrupt(error: BaseException) -> bool:
    """Return whether an exception is an interrupt by the user, which nothing contains: Ctrl-C reaches only the main thread."""
    return issubclass(type(error), KeyboardInterrupt) and (
        threading.current_thread() is threading.main_thread()
    )


def described(error: BaseException) -> str:
    """Return an exception as one line, its type and message; if it cannot be printed, its type alone."""
    name = type.__dict__["__name__"].__get__(type(error))
    try:
        text = " ".join(str.split(str(error)))
    except BaseException as failure:
        if is_interrupt(failure):
            raise
        return f"{name} (it cannot be printed)"
    missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
    if isinstance(missing, str) and missing.startswith("specdec_"):
        text += f": pip install {missing.partition('.')[0].replace('_', '-')}"
    return f"{name}: {text}" if text else f"{name}"


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
