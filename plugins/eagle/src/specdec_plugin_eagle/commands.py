"""`specdec convert`: formats of heads."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from specdec import hookimpl
from specdec_cli import print_fields, print_json, print_table


class Layout(StrEnum):
    """The formats that heads are converted to."""

    speculators = "speculators"
    published = "published"


@hookimpl
def specdec_register_commands(app: typer.Typer) -> None:
    """Add `specdec convert`."""
    app.command("convert")(convert)


def convert(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The head: a directory or a hub id.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The directory to write; new, or empty.")],
    to: Annotated[Layout, typer.Option(help="The format to write.")],
    verifier: Annotated[
        str | None,
        typer.Option(help="The target that the speculators format names: a directory or a hub id."),
    ] = None,
    num_speculative_tokens: Annotated[
        int | None, typer.Option(help="Tokens drafted per step that it names.", show_default="3")
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Revision of the source on a hub.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be written, and write nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Convert draft checkpoints between formats.

    EAGLE-1, EAGLE-2 and EAGLE-3 heads; weights stay bit for bit what they are, only names and config.json change. Pickles of
    any head become safetensors with the layout that they have.
    """
    from specdec_plugin_eagle.conversion import check_out, plan_conversion

    check_out(out)
    plan = plan_conversion(
        source, to.value, revision=revision, verifier=verifier, num_tokens=num_speculative_tokens
    )
    if not dry_run:
        plan.write(out)
    shapes = {old: plan.source.shape(old) for old in plan.tensors}
    if as_json:
        tensors = [{"from": a, "to": b, "shape": list(shapes[a])} for a, b in plan.tensors.items()]
        fields: dict[str, Any] = {"method": plan.method, "out": str(out), "is_written": not dry_run}
        print_json(fields | {"tensors": tensors, "config": plan.config})
        return
    print_table(("tensor", "becomes", "shape"), [(a, b, list(shapes[a])) for a, b in plan.tensors.items()])
    print()
    print_fields(plan.config)
    print()
    print(f"{plan.method} head " + (f"would be written to {out}" if dry_run else f"written to {out}"))
