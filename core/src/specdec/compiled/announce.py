"""Logs, once per process, that code of specdec is being compiled, so that the first start on a machine is not silent."""

from __future__ import annotations

import logging
from typing import Any

from numba.core import event

from specdec.folders import compiled_folder

logger = logging.getLogger("specdec.compiled")


class _Announcer(event.Listener):
    """Logs a line when the first function is compiled; functions read from the cache are not compiled."""

    def __init__(self) -> None:
        self._is_said = False

    def on_start(self, event: Any) -> None:
        """Log the line, unless it has been logged or the function is not ours."""
        function = getattr(event.data.get("dispatcher"), "py_func", None)
        if self._is_said or not str(getattr(function, "__module__", "")).startswith("specdec"):
            return
        self._is_said = True
        logger.warning(
            "compiling for this machine, which is done once and may take a minute or two; kept in %s",
            compiled_folder(),
        )

    def on_end(self, event: Any) -> None:
        """Do nothing; further functions may follow."""


def announce() -> None:
    """Register the announcement of compilations in this process."""
    event.register("numba:compile", _Announcer())  # type: ignore[no-untyped-call]  # numba is not annotated
