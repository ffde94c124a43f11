"""`specdec arena`: measurements that strangers can check, and a page of many."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from specdec import ConfigError, hookimpl
from specdec_cli import check_extra

FORGED = 1
"""Exit code of `verify` for a submission that does not hold."""


@hookimpl
def specdec_register_commands(app: typer.Typer) -> None:
    """Add `specdec arena`."""
    commands = typer.Typer(
        help="Measure contestants as strangers can check it, verify submissions, show a board of them.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    for command in (run, verify, submit, page):
        commands.command(command.__name__)(command)
    app.add_typer(commands, name="arena")


def run(
    out: Annotated[Path, typer.Argument(metavar="FOLDER", help="The submission to write.")],
    suite: Annotated[
        str, typer.Option(metavar="NAME", help="spec_bench, speed_bench, mt_bench, gsm8k or humaneval.")
    ],
    dataset: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The suite's questions; humaneval brings its own.")
    ] = None,
    num_prompts: Annotated[
        int | None, typer.Option(min=1, help="Questions, evenly over the categories; default: all.")
    ] = None,
    model: Annotated[
        str, typer.Option(help="Target, as for bench; with --url its files, for their hashes.")
    ] = "",
    speculative_config: Annotated[
        list[str] | None,
        typer.Option(metavar="JSON|FILE", help="A contestant that runs here; give any number of them."),
    ] = None,
    url: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="A contestant on a server with the OpenAI interface; any number."),
    ] = None,
    plain_url: Annotated[
        str | None, typer.Option(metavar="URL", help="A server of the same model without speculation.")
    ] = None,
    off: Annotated[
        str, typer.Option(metavar="JSON", help="Or fields of a request that turn it off at the first --url.")
    ] = "{}",
    served_model: Annotated[
        str | None, typer.Option(help="What requests call the model; default: the first one listed.")
    ] = None,
    api_key: Annotated[str | None, typer.Option(envvar="SPECDEC_API_KEY", help="Key of the servers.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for a server.")] = 300.0,
    batch_size: Annotated[
        list[int] | None, typer.Option(metavar="N", help="Requests in flight, 1 to 64; give any number.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="The most tokens of an answer.")] = 128,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Question i is sampled with seed SEED + i.")] = 0,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16, ...")] = "auto",
    max_model_len: Annotated[
        int | None, typer.Option(min=2, help="Longest context; default: the model's.")
    ] = None,
    stamp_samples: Annotated[
        int, typer.Option(min=0, help="Samples of each of 8 prompts for the stamp; 0: greedy alone.")
    ] = 128,
    stamp_temperature: Annotated[float, typer.Option(help="Of these samples.")] = 0.8,
    note: Annotated[
        str, typer.Option(help="How the servers were started, and their versions, for readers.")
    ] = "",
) -> None:
    """Measure contestants beside plain decoding, in turns, and write a submission: raw rows, hashes, commands, versions."""
    given = {name: value for name, value in locals().items() if name not in ("out", "note")}
    check_extra("models", "specdec arena")
    check_extra("bench", "specdec arena")
    from specdec_cli.arena.plan import Plan
    from specdec_cli.arena.run import run as measure
    from specdec_cli.audit.command import fields_of

    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"{str(out)!r} is not empty: give a new folder")
    given |= {"off": fields_of("--off", off), "model": model or ("" if url else "zoo")}
    plan = Plan(**{name: value for name, value in given.items() if value is not None})
    measure(plan, out, note)
    _show(out)


def verify(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A submission.")],
    model: Annotated[
        str | None, typer.Option(help="The target at hand: compare its files, and generate rows again.")
    ] = None,
    dataset: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The suite's questions, for rows to generate again.")
    ] = None,
    sample: Annotated[int, typer.Option(min=1, help="Rows to generate again, drawn at random.")] = 8,
    seed: Annotated[
        int | None, typer.Option(help="Of the choice of rows; default: another one each time.")
    ] = None,
) -> None:
    """Compute every number again from the raw rows, check hashes and times, and, with the target, generate rows again.

    The exit code is 0 if the submission holds, 1 if it does not, 2 if it cannot be read.
    """
    check_extra("bench", "specdec arena")
    from specdec_cli.arena.verify import checked

    submission, faults = checked(folder)
    said = "numbers, hashes and times hold"
    if submission is not None and not faults and model is not None:
        check_extra("models", "--model")
        from specdec_cli.arena.regenerate import check_again

        faults, said = check_again(submission, model, dataset, sample, seed)
    for fault in faults:
        print(f"does not hold: {fault}")
    if faults:
        raise typer.Exit(FORGED)
    print(f"verified: {said}")


def submit(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A submission.")],
    board: Annotated[Path, typer.Argument(metavar="BOARD", help="The folder of a board's submissions.")],
) -> None:
    """Verify a submission without the model, and pack it into a board."""
    check_extra("bench", "specdec arena")
    from specdec_cli.arena.board import add

    print(add(folder, board))


def page(
    board: Annotated[Path, typer.Argument(metavar="BOARD", help="The folder of a board's submissions.")],
    out: Annotated[Path, typer.Argument(metavar="OUT.html", help="The page to write.")],
) -> None:
    """Write one page of all submissions of a board, each verified without the model."""
    check_extra("bench", "specdec arena")
    from specdec_cli.arena.board import read_board
    from specdec_cli.arena.page import render
    from specdec_cli.bench.paths import check_folders

    check_folders({"OUT.html": out})
    out.write_text(render(read_board(board)), encoding="utf-8")


def _show(folder: Path) -> None:
    """Print the numbers of a submission."""
    from specdec_cli import print_table
    from specdec_cli.arena.page import COLUMNS, cells
    from specdec_cli.arena.submission import read_submission

    facts = read_submission(folder).facts
    rows: list[Any] = [[entry["batch_size"], *cells(facts, entry)] for entry in facts.numbers]
    print_table(["batch", *COLUMNS], rows)
