"""Adds `specdec bench`."""

from __future__ import annotations

import typer

from specdec import hookimpl
from specdec_bench.cli.command import bench


@hookimpl
def specdec_register_commands(app: typer.Typer) -> None:
    """Add `specdec bench`."""
    app.command("bench")(bench)
