"""The command line: `specdec COMMAND`. Commands are plugins, loaded when they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec.cli.default_model import choose_model as choose_model
    from specdec.cli.draftless import draftless_configs as draftless_configs
    from specdec.cli.highlight import GUESSED as GUESSED
    from specdec.cli.highlight import PLAIN as PLAIN
    from specdec.cli.highlight import GrowingText as GrowingText
    from specdec.cli.highlight import paint as paint
    from specdec.cli.highlight import takes_colour as takes_colour
    from specdec.cli.no_drafts import no_drafts_message as no_drafts_message
    from specdec.cli.no_drafts import no_drafts_warning as no_drafts_warning
    from specdec.cli.output import error as error
    from specdec.cli.output import print_fields as print_fields
    from specdec.cli.output import print_json as print_json
    from specdec.cli.output import print_table as print_table
    from specdec.cli.output import table_lines as table_lines
    from specdec.cli.output import warn as warn
    from specdec.cli.progress_bar import Steps as Steps
    from specdec.cli.progress_bar import loading as loading
    from specdec.cli.progress_bar import progress as progress
    from specdec.cli.quiet import hush_libraries as hush_libraries
    from specdec.cli.quiet import notices_once as notices_once

__all__ = [
    "GUESSED",
    "PLAIN",
    "GrowingText",
    "Steps",
    "choose_model",
    "draftless_configs",
    "error",
    "hush_libraries",
    "loading",
    "no_drafts_message",
    "no_drafts_warning",
    "notices_once",
    "paint",
    "print_fields",
    "print_json",
    "print_table",
    "progress",
    "table_lines",
    "takes_colour",
    "warn",
]

__getattr__ = lazily(
    __name__,
    {
        "GUESSED": "highlight",
        "GrowingText": "highlight",
        "PLAIN": "highlight",
        "Steps": "progress_bar",
        "choose_model": "default_model",
        "draftless_configs": "draftless",
        "error": "output",
        "hush_libraries": "quiet",
        "no_drafts_message": "no_drafts",
        "no_drafts_warning": "no_drafts",
        "notices_once": "quiet",
        "paint": "highlight",
        "print_fields": "output",
        "print_json": "output",
        "print_table": "output",
        "loading": "progress_bar",
        "progress": "progress_bar",
        "table_lines": "output",
        "takes_colour": "highlight",
        "warn": "output",
    },
)
