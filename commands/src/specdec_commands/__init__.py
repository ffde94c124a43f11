"""The command `specdec`, its commands `doctor` and `plugins`, and what all commands share: tables, JSON, progress, errors.

Each command is a plugin (`specdec.commands`), imported when it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec_commands.defaults import default_configs
    from specdec_commands.main import run
    from specdec_commands.output import (
        USER_ERROR,
        error,
        hint,
        print_fields,
        print_json,
        print_table,
        table_lines,
        warn,
    )
    from specdec_commands.probe import ProbeResult
    from specdec_commands.progress_bar import Steps, loading, progress
    from specdec_commands.quiet import hush_libraries

__all__ = [
    "USER_ERROR",
    "ProbeResult",
    "Steps",
    "default_configs",
    "error",
    "hint",
    "hush_libraries",
    "loading",
    "print_fields",
    "print_json",
    "print_table",
    "progress",
    "run",
    "table_lines",
    "warn",
]

__getattr__ = lazily(__name__)
