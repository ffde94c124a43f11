"""The command line: `specdec COMMAND`. Commands are plugins, loaded when they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec.cli.defaults import default_configs
    from specdec.cli.no_drafts import no_drafts_message, no_drafts_warning
    from specdec.cli.output import (
        USER_ERROR,
        error,
        hint,
        print_fields,
        print_json,
        print_table,
        table_lines,
        warn,
    )
    from specdec.cli.progress_bar import Steps, loading, progress
    from specdec.cli.quiet import hush_libraries

__all__ = [
    "USER_ERROR",
    "Steps",
    "default_configs",
    "error",
    "hint",
    "hush_libraries",
    "loading",
    "no_drafts_message",
    "no_drafts_warning",
    "print_fields",
    "print_json",
    "print_table",
    "progress",
    "table_lines",
    "warn",
]

__getattr__ = lazily(__name__)
