"""`specdec audit`: checks whether a server's output is the same with and without speculation."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from specdec import ConfigError, hookimpl
from specdec_cli import check_extra


@hookimpl
def specdec_register_commands(app: typer.Typer) -> None:
    """Add `specdec audit`."""
    app.command("audit")(audit)


def audit(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="A server with speculation, such as http://127.0.0.1:8000.")
    ],
    reference: Annotated[
        str | None,
        typer.Argument(
            metavar="URL2",
            help="The same model without; default: URL itself, asked with the fields of --off.",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="What requests call the model; default: the first one listed.")
    ] = None,
    reference_model: Annotated[str | None, typer.Option(help="The same at URL2.")] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="SPECDEC_API_KEY", help="Key of both servers.")
    ] = None,
    off: Annotated[
        str, typer.Option(metavar="JSON", help="Fields of a request that turn speculation off at URL.")
    ] = '{"speculative": false}',
    prompts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Prompts, as for bench; default: 16 that come along.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(help="Tokens of each answer at temperature 0.")] = 64,
    temperature: Annotated[float, typer.Option(help="Of the samples; 0 leaves them out.")] = 0.8,
    sampling: Annotated[
        str, typer.Option(metavar="JSON", help='Further parameters of the samples, such as {"top_p": 0.9}.')
    ] = "{}",
    samples: Annotated[int, typer.Option(help="Samples of each prompt, with and without.")] = 256,
    sample_tokens: Annotated[int, typer.Option(help="Tokens of each sample; each position is tested.")] = 8,
    sampled_prompts: Annotated[int, typer.Option(help="Of how many prompts samples are taken.")] = 8,
    concurrency: Annotated[int, typer.Option(help="Requests at a time; prompts are also asked alone.")] = 8,
    false_alarm_rate: Annotated[
        float, typer.Option(help="Probability of calling equal distributions different.")
    ] = 0.001,
    tolerance: Annotated[
        float | None,
        typer.Option(metavar="NATS", help="Largest gap of a near-tie; default: from the rounding seen."),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an answer.")] = 120.0,
    assume_drafts: Annotated[
        bool, typer.Option("--assume-drafts", help="Judge also if a server does not tell whether it drafts.")
    ] = False,
    html: Annotated[Path | None, typer.Option(metavar="OUT", help="Write the page as HTML.")] = None,
    json_out: Annotated[
        Path | None,
        typer.Option("--json", metavar="OUT", help="Write everything as JSON; - for the standard output."),
    ] = None,
) -> None:
    """Ask a server with and without speculation, and compare.

    Works with any server that has OpenAI's completions: specdec, vLLM, SGLang, llama.cpp. At temperature 0 tokens must be
    equal except for near-ties; above it their distributions must be equal. The exit code is 0 if speculation changes
    nothing, 1 if it does, 2 if the audit could not decide.
    """
    plan = _plan(locals())
    check_extra("bench", "specdec audit")

    import asyncio

    from specdec_cli import print_json, progress
    from specdec_cli.audit.page import page, text
    from specdec_cli.audit.run import audit as run

    with progress(f"asking {plan.url}", plan.num_answers) as steps:
        report = asyncio.run(run(plan, steps.advance))
    try:
        if html is not None:
            html.write_text(page(report), encoding="utf-8")
        if json_out is not None:
            print_json(report.as_json(), json_out)
    except OSError as error:
        raise ConfigError(f"cannot write {error.filename}: {error.strerror}") from None
    if json_out is None or str(json_out) != "-":
        print(text(report))
    if report.verdict:
        raise typer.Exit(int(report.verdict))


def _plan(given: dict[str, Any]) -> Any:
    from specdec_cli.audit.plan import Plan
    from specdec_cli.audit.prompts import read_prompts
    from specdec_cli.bench.environment import without_key

    return Plan(
        url=given["url"],
        reference=given["reference"],
        model=given["model"],
        reference_model=given["reference_model"] or given["model"],
        api_key=given["api_key"],
        off=fields_of("--off", given["off"]),
        prompts=read_prompts(given["prompts"]),
        max_tokens=given["max_tokens"],
        temperature=given["temperature"],
        sampling=fields_of("--sampling", given["sampling"]),
        num_sampled_prompts=given["sampled_prompts"],
        num_samples=given["samples"],
        num_tokens=given["sample_tokens"],
        concurrency=given["concurrency"],
        false_alarm_rate=given["false_alarm_rate"],
        tolerance=given["tolerance"],
        timeout_s=given["timeout"],
        is_drafting_assumed=given["assume_drafts"],
        command=shlex.join(["specdec", *without_key(sys.argv[1:])]),
    )


def fields_of(option: str, text: str) -> dict[str, Any]:
    """Return the fields of a request that an option gives as JSON.

    Raises:
        ConfigError: if it gives anything else.
    """
    import json

    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{option} {text!r} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{option}: give an object of fields and values, not {text}")
    return found
