"""`specdec train`: a draft model or head for any target, from text."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from specdec import hookimpl
from specdec.cli.output import print_fields, print_json


class Method(StrEnum):
    """What can be trained."""

    DRAFT = "draft"
    EAGLE = "eagle"
    EAGLE3 = "eagle3"
    MTP = "mtp"
    MLP = "mlp"


@hookimpl
def specdec_register_commands(app: typer.Typer) -> None:
    """Add `specdec train`."""
    app.command("train")(train)


def train(
    method: Annotated[Method, typer.Argument(help="What to train.")],
    data: Annotated[
        list[Path],
        typer.Option(
            help="Text to train on: files, or .jsonl with a text per line. More may follow: --data *.txt."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the result; must be new or empty.")],
    more_data: Annotated[
        list[Path] | None, typer.Argument(help="More text: what follows the first of --data.")
    ] = None,
    target: Annotated[str, typer.Option(help="Target: a directory, a hub id, or zoo.")] = "zoo",
    work: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for checkpoints [default: OUT with .work behind it]."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint.")] = False,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimizer steps.")] = None,
    max_minutes: Annotated[
        float | None, typer.Option(min=0.0, help="Time budget; the learning rate decays within it.")
    ] = None,
    seq_len: Annotated[int | None, typer.Option(min=8, help="Tokens of a window.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Windows per optimizer step.")] = None,
    num_steps: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens guessed one after the other in training; heads of an mlp."),
    ] = None,
    draft_vocab_size: Annotated[
        int | None, typer.Option(min=0, help="Ids that an eagle3 head can name; 0 for all.")
    ] = None,
    heldout_permille: Annotated[int, typer.Option(min=1, max=500, help="Share of texts held out.")] = 50,
    seed: Annotated[int, typer.Option(help="Seed of weights and data order.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train a draft model or head on the target's own states, and write it in its published format.

    Progress goes to the standard error output: loss, and how often a guess stands on held-out text, place after place.
    """
    from specdec_train.heads.command import train_from_files

    changes = {
        "max_steps": steps,
        "seq_len": seq_len,
        "batch_size": batch_size,
        "micro_batch": batch_size,
        "num_steps": num_steps,
        "draft_vocab_size": draft_vocab_size,
        "seed": seed,
    }
    report = train_from_files(
        method.value,
        target,
        [*data, *(more_data or [])],
        out,
        work or out.with_name(out.name + ".work"),
        changes={key: value for key, value in changes.items() if value is not None},
        heldout_permille=heldout_permille,
        max_minutes=max_minutes,
        is_resuming=resume,
    )
    (print_json if as_json else print_fields)(report)
