"""The command behind `specdec bench`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from specdec.cli.output import print_json, progress
from specdec.errors import ConfigError

ZOO_PROMPTS = 16
"""How many of the zoo's prompts are taken unless told otherwise."""


def bench(
    model: Annotated[str, typer.Option(help="Target: a directory, a hub id, or zoo.")] = "zoo",
    speculative_config: Annotated[
        list[str] | None,
        typer.Option(metavar="JSON|FILE", help="A configuration to measure; give any number of them."),
    ] = None,
    dataset: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl",
            help='{"prompt": ...} or {"prompt_token_ids": ...} a line; default: held-out prompts of the zoo.',
        ),
    ] = None,
    num_prompts: Annotated[
        int | None, typer.Option(min=1, help=f"Default: all of a dataset, {ZOO_PROMPTS} of the zoo's.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="The most tokens to generate per prompt.")] = 128,
    batch_size: Annotated[int, typer.Option(min=1, help="Requests in flight.")] = 1,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy.")] = 0.8,
    seed: Annotated[int, typer.Option(help="Prompt i is sampled with seed SEED + i.")] = 0,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16, ...")] = "auto",
    max_model_len: Annotated[
        int | None, typer.Option(min=2, help="Longest context; default: the model's.")
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="Turns of everybody; six are the fewest whose bounds hold at 95 %.")
    ] = 6,
    json: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Write the report as JSON; - for the standard output.")
    ] = None,
) -> None:
    """Measure configurations against plain decoding, on the same prompts, interleaved, in one run."""
    from specdec.bench.dataset import read_dataset, tokenize, zoo_prompts

    if json is not None and str(json) != "-" and not json.parent.is_dir():
        raise ConfigError(f"--json: there is no folder {str(json.parent)!r}")
    if dataset is None:
        prompts = zoo_prompts(num_prompts or ZOO_PROMPTS)
    else:
        prompts = read_dataset(dataset, num_prompts)
    name, configs = _target_and_configs(model, speculative_config or [])

    from specdec.bench import Comparison, Workload, contenders_of, environment
    from specdec.cli.quiet import hush_libraries
    from specdec.config.fit import target_facts
    from specdec.engine.options import EngineOptions
    from specdec.loading.target import load_target, resolve_name

    hush_libraries()
    contenders = contenders_of(configs, target_facts(resolve_name(name)))
    target = load_target(EngineOptions(model=name, dtype=dtype, max_model_len=max_model_len))
    tokens = tokenize(prompts, target.tokenizer, target.max_model_len)
    workload = Workload(tokens, max_tokens, batch_size, temperature, seed)
    with progress("bench", rounds * len(contenders) * len(tokens)) as display:
        comparison = Comparison(target, workload, contenders, advance(display))
        for _ in range(rounds):
            comparison.run_round()
    _show(comparison.rows(), environment(target, workload, rounds), json)


def advance(display: Any) -> Callable[[], None]:
    """Return what moves the one bar of a progress display forward; nothing where there is no display."""
    if display is None:
        return lambda: None
    return lambda: display.advance(display.task_ids[0])


def _target_and_configs(model: str, configs: list[str]) -> tuple[str, list[Any]]:
    """Return what to load and measure; a speculator given as the model brings its target and configuration along."""
    from specdec.config import target_of

    found = target_of(model)
    if found is None:
        return model, list(configs)
    target, own = found
    return target, [own, *configs]


def _show(rows: list[dict[str, Any]], environment: dict[str, Any], path: Path | None) -> None:
    report = {"rows": rows, "environment": environment}
    if path is not None:
        try:
            print_json(report, path)
        except OSError as error:
            raise ConfigError(f"--json: cannot write {str(path)!r}: {error.strerror}") from None
    if path is None or str(path) != "-":
        from specdec.cli.bench.table import print_report

        print_report(rows, environment)
