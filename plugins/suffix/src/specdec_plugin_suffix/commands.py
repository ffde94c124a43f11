"""`specdec suffix`: the cache of responses."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specdec import hookimpl
from specdec_cli import print_fields, print_json


@hookimpl
def specdec_register_commands(app: typer.Typer) -> None:
    """Add `specdec suffix`."""
    commands = typer.Typer(
        help="Make cache files for suffix decoding.", no_args_is_help=True, rich_markup_mode=None
    )
    commands.callback()(_group)
    commands.command("warm")(warm)
    app.add_typer(commands, name="suffix")


def _group() -> None:
    """Make cache files for suffix decoding."""


def warm(
    outputs: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.jsonl", help='Past outputs, a line each: {"text": ...} or {"token_ids": [...]}.'
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="CACHE", help="The cache file to write.")],
    model: Annotated[
        str, typer.Option(help="Target: a directory, a hub id, or zoo; its tokenizer is taken.")
    ] = "zoo",
    append: Annotated[
        bool, typer.Option("--append", help="Add to the file if there is one, instead of refusing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make a cache file from past outputs, for suffix_decoding_cache_path.

    The earlier an output is in the file, the sooner it is forgotten. Outputs under the key response count too.
    """
    from specdec_plugin_suffix.warm import warm_cache

    report = warm_cache(outputs, model, out, is_appending=append)
    (print_json if as_json else print_fields)(report)
