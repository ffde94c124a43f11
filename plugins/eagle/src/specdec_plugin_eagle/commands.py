"""`specdec convert` and `specdec check-head`: formats of heads, and how their files are read."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from specdec import hookimpl
from specdec.cli import print_fields, print_json, print_table


class Layout(StrEnum):
    """The formats that heads are converted to."""

    speculators = "speculators"
    published = "published"


@hookimpl
def specdec_register_commands(app: typer.Typer) -> None:
    """Add `specdec convert` and `specdec check-head`."""
    app.command("convert")(convert)
    app.command("check-head")(check)


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


def check(
    head: Annotated[str, typer.Argument(metavar="HEAD", help="The head: a directory or a hub id.")],
    prompts: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Texts, best the target's answers: JSON lines with text, prompt and response, or token_ids; or plain text.",
        ),
    ],
    model: Annotated[str, typer.Option(help="The target: a directory, a hub id, or zoo.")] = "zoo",
    max_tokens: Annotated[int, typer.Option(help="Tokens of text that are used.", min=64)] = 8192,
    max_length: Annotated[
        int, typer.Option(help="Tokens of one text; windows above half of that are not tried.", min=64)
    ] = 4096,
    revision: Annotated[str | None, typer.Option(help="Revision of the head on a hub.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find out how a draft head was trained.

    For EAGLE heads, whose files leave some of it open, or say it wrongly.
    Layers that it reads, windows and norms are tried, and compared by the likelihood that the head gives to text. Ends with 1
    if another reading than that of the files is better.
    """
    from specdec_plugin_eagle.checking import check_head

    report = check_head(head, model, prompts, revision=revision, most_tokens=max_tokens, longest=max_length)
    if as_json:
        print_json(report)
    else:
        readings = report.pop("readings")
        remedies = report.pop("remedies")
        print_fields(report | {"best": report["best"] or "as published"})
        print()
        rows = [
            [f"{value:.4f}" if isinstance(value, float) else value for value in row.values()]
            for row in readings
        ]
        print_table(("reading", "first token", "second token", "gain", "standard error"), rows)
        print()
        print("log-likelihood in nats per token; gain: of both, over the files' reading")
        for remedy in remedies:
            print(f"better with {remedy}")
        report["remedies"] = remedies
    if report["remedies"]:
        raise typer.Exit(1)
