"""Log format of the server."""

from __future__ import annotations

import logging
import warnings


def set_up_logs(level: str, engine: int | None = None) -> None:
    """Write the log to standard error.

    Args:
        level: of our own log lines.
        engine: number of this process's engine among several, shown in each line.
    """
    place = "" if engine is None else f" engine {engine}"
    logging.basicConfig(format=f"%(asctime)s{place} %(levelname)s %(name)s: %(message)s")
    logging.getLogger("specdec").setLevel(level.upper())
    # By default Python hides deprecation warnings that point at a line of this program.
    warnings.filterwarnings("default", r"(LLM|speculative_config): ", DeprecationWarning)
    logging.captureWarnings(True)
