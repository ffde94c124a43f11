"""`specdec check-head`: how the files of a head are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specdec import hookimpl
from specdec_cli import print_fields, print_json, print_table


@hookimpl
def specdec_register_commands(app: typer.Typer) -> None:
    """Add `specdec check-head`."""
    app.command("check-head")(check)


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
    method: Annotated[
        str | None,
        typer.Option(help="The head's method, if its files do not tell it: mtp for the target's own layers."),
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Revision of the head on a hub.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find out how a draft head was trained.

    For heads of EAGLE, multi-token prediction and Medusa and for MLP speculators, whose files leave some of it open, or say it
    wrongly. Layers that it reads, windows, norms and the like are tried, and compared by the likelihood that the head gives to
    text. Ends with 1 if another reading than that of the files is better.
    """
    from specdec_runtime.drafting.checking.check import check_head

    report = check_head(
        head, model, prompts, method=method, revision=revision, most_tokens=max_tokens, longest=max_length
    )
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
