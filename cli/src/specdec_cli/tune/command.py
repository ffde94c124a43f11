"""The command behind `specdec tune`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specdec import ConfigError, hookimpl
from specdec_cli import check_extra, print_json, warn
from specdec_cli.bench.command import INTERRUPTED
from specdec_cli.bench.notices import notices_once
from specdec_cli.bench.paths import check_file, check_folders

if TYPE_CHECKING:
    from specdec_cli.tune.report import TuneReport

MINUTES = 4.0


@hookimpl
def specdec_register_commands(app: typer.Typer) -> None:
    """Add `specdec tune`."""
    app.command("tune")(tune)


def tune(
    model: Annotated[
        str, typer.Option(help="Target: a directory, a hub id, a GGUF file, smollm2, or zoo.")
    ] = "zoo",
    prompts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Your prompts, in the forms that specdec bench reads; with the zoo's model by default its held-out prompts.",
            show_default=False,
        ),
    ] = None,
    minutes: Annotated[float, typer.Option(min=0.1, help="Time for the search.")] = MINUTES,
    speculative_config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JSON|FILE",
            help="A configuration to try too, such as one with a head of yours; give any number of them.",
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
    output: Annotated[
        Path, typer.Option(metavar="OUT.json", help="Where the configuration is written.")
    ] = Path("speculative_config.json"),
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT.html", help="Where the page is written; default: beside the configuration."
        ),
    ] = None,
    json: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Write the report as JSON; - for the standard output.")
    ] = None,
) -> None:
    """Find the speculative_config that is fastest on your prompts, or that none is.

    Installed methods, their k, forms and combinations run beside plain decoding on the same prompts; in each stage the
    faster ones go on to more prompts. Ctrl-C ends the search with the best so far.
    """
    check_extra("models", "specdec tune")
    check_extra("bench", "specdec tune")
    html = html or output.with_suffix(".html")
    check_folders({"--output": output, "--html": html, "--json": json})
    check_file(prompts)
    if html == output:
        raise ConfigError(f"--html and --output are both {str(output)!r}: give two files")
    from specdec.config import check_first

    for config in speculative_config or []:
        check_first(config)
    from specdec_cli.bench.task import Options
    from specdec_cli.tune.report import TuneReport
    from specdec_cli.tune.task import TuneTask

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
        is_prefix_cached=False,
    )
    ended_by: KeyboardInterrupt | Exception | None = None
    with notices_once():
        task = TuneTask(options, prompts, 60 * minutes)
        try:
            task.run()
        except (KeyboardInterrupt, Exception) as reason:  # what was measured must not be lost
            ended_by = reason
    choice = task.choice()
    if choice is not None:
        _show(TuneReport(task, choice, is_interrupted=ended_by is not None), output, html, json)
    if isinstance(ended_by, Exception):
        raise ended_by
    if ended_by is not None:
        if choice is None:
            warn(
                "interrupted before there was anything to report: the first prompts were not answered by all"
            )
        raise typer.Exit(INTERRUPTED)


def _show(report: TuneReport, output: Path, html: Path, json: Path | None) -> None:
    """Write everything that can be written.

    Raises:
        ConfigError: for a file that cannot be written; it is raised after all other output is written.
    """
    from specdec_cli.tune.report import write_config

    if json is None or str(json) != "-":
        report.print()
    failures = []
    config = report.choice.config
    writes: list[tuple[str, Path, Callable[[Path], object]]] = [
        ("--html", html, lambda path: path.write_text(report.page(), encoding="utf-8"))
    ]
    if config is not None:
        writes.insert(0, ("--output", output, lambda path: write_config(config, path)))
    if json is not None:
        writes.append(("--json", json, lambda path: print_json(report.data(), path)))
    for name, path, write in writes:
        try:
            write(path)
        except OSError as error:
            failures.append(ConfigError(f"{name}: cannot write {str(path)!r}: {error.strerror}"))
    for warning in report.warnings():
        warn(warning)
    if failures:
        raise failures[0]
    if json is None or str(json) != "-":
        if config is not None:
            print(f"\n{output}: for LLM(speculative_config=...), specdec serve and specdec bench")
        elif output.exists():
            print(f"\n{output}: an older file, which this search did not write")
        print(f"{html}: what was measured, and why this was chosen")
