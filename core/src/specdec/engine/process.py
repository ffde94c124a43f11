"""The process in which engines run: none runs in a fork of it, where OpenMP and CUDA do not work."""

from __future__ import annotations

import os

from specdec.errors import EngineError

_made_in: int | None = None


def enter_process() -> None:
    """Note that this process makes an engine.

    Raises:
        EngineError: as `check_process`.
    """
    global _made_in
    check_process()
    _made_in = os.getpid()


def is_fork() -> bool:
    """Return whether this process is a fork of one that has made an engine."""
    return _made_in is not None and _made_in != os.getpid()


def check_process() -> None:
    """Check that engines can run in this process.

    Raises:
        EngineError: if this is a fork of a process that has made one.
    """
    if is_fork():
        raise EngineError(
            f"process {os.getpid()} is a fork of process {_made_in}, which has made an LLM, so none can run here: fork before "
            "making one, or start this process with multiprocessing's method 'spawn'"
        )
