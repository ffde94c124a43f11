"""Entry point of an engine process: `python -m specdec_server.data_parallel.child`, with its task on standard input."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from time import sleep

from specdec import ConfigError, ModelError, PluginError
from specdec_cli import USER_ERROR, error
from specdec_server.data_parallel.launch import EngineTask

_AFTER_S = 5.0
"""Engines that start together make the same mistakes: the first tells them, and then the others are ended."""


def main() -> int:
    """Serve one engine until a signal or until the parent process is gone; return the exit code."""
    task = pickle.load(sys.stdin.buffer)  # written by the parent process
    assert isinstance(task, EngineTask)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    from specdec_server.launch import launch

    try:
        launch(task.words, task.http, **task.options)
    except (ConfigError, PluginError, ModelError) as mistake:
        if task.options["rank"].index:
            sleep(_AFTER_S)
        error(str(mistake))
        return USER_ERROR
    return 0


def _exit_with_parent() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
