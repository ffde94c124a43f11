"""Constructs and loads a proposer; its own exceptions become errors that name it."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import specdec
from specdec.config import ResolvedSpeculation
from specdec.errors import ConfigError, EngineError, ModelError, PluginError
from specdec.interfaces.proposer import Proposer
from specdec.interfaces.target import TargetHandle, TargetInfo

_OURS = Path(specdec.__file__).parent


def make_proposer(speculation: ResolvedSpeculation, info: TargetInfo) -> Proposer:
    """Return the configured proposer, not loaded yet.

    Raises:
        ConfigError: if the configuration does not fit the target.
        PluginError: if its constructor raises anything else.
    """
    made = speculation.proposer_class
    with _naming(made, "__init__"):
        return made(speculation.proposer_config, info)


def load_proposer(proposer: Proposer, target: TargetHandle) -> None:
    """Load a proposer's weights.

    Raises:
        ConfigError: see `make_proposer`.
        ModelError: for weights that cannot be used.
        PluginError: if `load` raises anything else.
    """
    with _naming(type(proposer), "load"):
        proposer.load(target)


def line_of(error: BaseException) -> str:
    """Return where an exception was raised, ` at FILE:LINE`, outside specdec if it passed through other code."""
    frames = traceback.extract_tb(error.__traceback__)
    others = [frame for frame in frames if not Path(frame.filename).is_relative_to(_OURS)]
    last = (others or frames)[-1:]
    return f" at {last[0].filename}:{last[0].lineno}" if last else ""


@contextmanager
def _naming(proposer: type[Proposer], what: str) -> Iterator[None]:
    try:
        yield
    except (ConfigError, ModelError, PluginError, EngineError, MemoryError):
        raise
    except Exception as error:
        raise PluginError(
            f"proposer {proposer.name!r}: {what} raised {type(error).__name__}: {error}{line_of(error)}"
        ) from error
