"""The command `specdec`, its own commands, and what all commands share: tables, JSON, progress, errors, text in colour.

Each command is a plugin (`specdec.commands`), imported when it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec_cli.default_model import choose_model
    from specdec_cli.defaults import default_configs
    from specdec_cli.extras import check_extra
    from specdec_cli.main import run
    from specdec_cli.output import (
        USER_ERROR,
        error,
        hint,
        print_fields,
        print_json,
        print_table,
        table_lines,
        warn,
    )
    from specdec_cli.probe import ProbeResult
    from specdec_cli.progress_bar import Steps, loading, progress
    from specdec_cli.quiet import quiet_libraries

__all__ = [
    "USER_ERROR",
    "ProbeResult",
    "Steps",
    "check_extra",
    "choose_model",
    "default_configs",
    "error",
    "hint",
    "loading",
    "print_fields",
    "print_json",
    "print_table",
    "progress",
    "quiet_libraries",
    "run",
    "table_lines",
    "warn",
]

__getattr__ = lazily(__name__)
