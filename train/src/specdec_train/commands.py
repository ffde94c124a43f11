"""`specdec train`: a draft model or head for any target, from its own answers or from text."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from specdec import hookimpl
from specdec_cli import print_fields, print_json

INTERRUPTED = 130
"""Exit code of a run that Ctrl-C or SIGTERM ended."""


class Method(StrEnum):
    """What can be trained."""

    DRAFT = "draft"
    EAGLE = "eagle"
    EAGLE3 = "eagle3"
    DFLASH = "dflash"
    DSPARK = "dspark"
    MTP = "mtp"
    MLP = "mlp"


@hookimpl
def specdec_register_commands(app: typer.Typer) -> None:
    """Add `specdec train`."""
    app.command("train")(train)


def train(
    method: Annotated[Method, typer.Argument(help="What to train.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the result; must be new or empty.")],
    more_files: Annotated[
        list[Path] | None, typer.Argument(help="More files: what follows the first of --prompts or --data.")
    ] = None,
    target: Annotated[
        str, typer.Option(help="Target: a directory, a hub id, a GGUF file, smollm2 or zoo.")
    ] = "zoo",
    prompts: Annotated[
        list[Path] | None,
        typer.Option(
            help="Prompts that the target answers: lines of "
            '{"prompt": ...}, {"messages": [...]} or {"turns": [...]}, or text with a prompt a line; .gz too.'
        ),
    ] = None,
    self_instruct: Annotated[
        int, typer.Option(metavar="N", min=0, help="Prompts that the target writes itself, and answers.")
    ] = 0,
    answers: Annotated[
        list[Path] | None,
        typer.Option(help="Answers made before, OUT.answers.jsonl of an earlier run for example."),
    ] = None,
    use_given_answers: Annotated[
        bool,
        typer.Option(
            "--use-given-answers",
            help="Learn a last assistant message of --prompts as it is, instead of the target's own answer.",
        ),
    ] = False,
    finetune: Annotated[
        str,
        typer.Option(
            metavar="HEAD",
            help="Continue the training of a published eagle or eagle3 head of this target: a directory, a hub id, or zoo.",
        ),
    ] = "",
    max_tokens: Annotated[int, typer.Option(min=16, help="The most tokens of an answer.")] = 320,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            help="Text to train on as it is: files, or .jsonl with a text per line. More may follow: --data *.txt."
        ),
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for checkpoints [default: OUT with .work behind it]."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on from what an interrupted run left; with --minutes 0, write its head as it is.",
        ),
    ] = False,
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes",
            "--max-minutes",
            min=0.0,
            help="Time for all of it, answers included, earlier parts too; the learning rate decays within it.",
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimizer steps.")] = None,
    seq_len: Annotated[int | None, typer.Option(min=8, help="Tokens of a window.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Windows per optimizer step.")] = None,
    num_steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Tokens guessed one after the other in training; heads of an mlp, tokens of a dflash or dspark block.",
        ),
    ] = None,
    draft_vocab_size: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Ids that an eagle3, dflash or dspark head can name, the most frequent ones; 0 for all. Default for answers: "
            "as many as cover 98 % of their tokens, at least 8192.",
        ),
    ] = None,
    heldout_permille: Annotated[int, typer.Option(min=1, max=500, help="Share of texts held out.")] = 50,
    seed: Annotated[int, typer.Option(help="Seed of weights and data order.")] = 1,
    bench: Annotated[
        bool, typer.Option(help="Measure the head beside plain decoding at the end, on held-out prompts.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train a draft model or head on the target's own states, and write it in its published format.

    With --prompts or --self-instruct it is trained on the target's own answers, and only on these. Progress
    goes to standard error: loss, acceptance on held-out text per position, and the time left. Ctrl-C keeps
    the progress, and --resume continues.
    """
    from specdec_cli import error, quiet_libraries
    from specdec_train.heads.command import train_from
    from specdec_train.heads.options import TrainOptions
    from specdec_train.interruption import Interrupted

    changes = {
        "max_steps": steps,
        "seq_len": seq_len,
        "batch_size": batch_size,
        "micro_batch": batch_size,
        "num_steps": num_steps,
        "draft_vocab_size": draft_vocab_size,
        "seed": seed,
    }
    more = tuple(more_files or ())
    options = TrainOptions(
        method=method.value,
        target=target,
        out=out,
        work=work or out.with_name(out.name + ".work"),
        data=(*(data or ()), *(() if prompts else more)),
        prompts=(*(prompts or ()), *(more if prompts else ())),
        answers=tuple(answers or ()),
        num_written=self_instruct,
        uses_given=use_given_answers,
        finetuned_from=finetune,
        max_tokens=max_tokens,
        changes={key: value for key, value in changes.items() if value is not None},
        heldout_permille=heldout_permille,
        minutes=minutes,
        is_resuming=resume,
        measures=bench,
    )
    quiet_libraries()
    try:
        report = train_from(options)
    except Interrupted as stop:
        error(f"{stop}: go on with --resume, or write the head as it is with --resume --minutes 0")
        raise typer.Exit(INTERRUPTED) from None
    (print_json if as_json else print_fields)(report)
