"""`specdec demo`: runs every installed method on SmolLM2, or on the zoo's small model."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from specdec import ConfigError, PluginError, hookimpl, registry
from specdec.config import PACKAGED, ZOO, packaged_model
from specdec_cli import Steps, check_extra, choose_model, loading, print_json, progress

if TYPE_CHECKING:
    from specdec.config import TargetFacts
    from specdec_cli.bench import Comparison, Contender

TEMPERATURES = (0.0, 0.8)
SECONDS = 20.0
"""No further round starts if it would probably exceed this time."""


@hookimpl
def specdec_register_commands(app: typer.Typer) -> None:
    """Add `specdec demo`."""
    app.command("demo")(demo)


def demo(
    model: Annotated[
        str | None,
        typer.Option(help="smollm2 or zoo; default: smollm2 where its package is installed, else zoo."),
    ] = None,
    num_prompts: Annotated[int, typer.Option(min=1, help="Prompts, of which the first is answered.")] = 1,
    max_tokens: Annotated[int, typer.Option(min=1, help="The most tokens to generate per prompt.")] = 64,
    rounds: Annotated[
        int, typer.Option(min=1, help="Turns of every method at most; fewer where time is short.")
    ] = 6,
    seed: Annotated[int, typer.Option(help="Prompt i is sampled with seed SEED + i.")] = 0,
    has_all: Annotated[
        bool, typer.Option("--all", help="Every installed method, not only those that pay on these models.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """See speculative decoding at work on a model that is there already.

    First a prompt is answered, accepted drafts in colour; then plain decoding and the methods generate the same texts, which
    must not change. The exit code is 1 if a text changes.
    """
    check_extra("models", "specdec demo")
    from specdec_cli.bench.notices import notices_once

    with notices_once():
        is_same = _demo(
            _chosen(model), num_prompts, max_tokens, rounds, seed, has_all=has_all, as_json=as_json
        )
    if not is_same:
        raise typer.Exit(1)


def _demo(
    name: str,
    num_prompts: int,
    max_tokens: int,
    rounds: int,
    seed: int,
    *,
    has_all: bool,
    as_json: bool,
) -> bool:
    """Run the demo on a model; return whether no text changed."""
    prompts = _prompts(name, num_prompts)
    print(
        f"{name} answers a prompt; then plain decoding and the methods are measured",
        file=sys.stderr,
        flush=True,
    )

    with loading(name):
        from specdec import EngineOptions
        from specdec.config import target_facts
        from specdec_cli import quiet_libraries
        from specdec_cli.bench import BASELINE, Comparison, Workload
        from specdec_cli.bench.candidates import LeftOut, configured, installed_methods, left_out
        from specdec_cli.bench.dataset import tokenize
        from specdec_cli.bench.environment import environment
        from specdec_cli.bench.prompt_file import ask
        from specdec_runtime.loading import load_target

        quiet_libraries()
        is_compiled = _is_compiled()
        # In 16 bits logits depend on the number of rows of a pass, except in deterministic mode.
        is_deterministic = name in PACKAGED and _has_compiled_loops()
        target = load_target(EngineOptions(model=name, dtype="auto" if is_deterministic else "float32"))
    assert target.path is not None
    facts = target_facts(target.path)
    tokens = tokenize(map(ask, prompts), target.tokenizer, target.max_model_len)
    base = Workload(tokens, max_tokens, seed=seed, is_deterministic=is_deterministic)
    names = installed_methods(has_all=has_all)
    first = None if as_json else _first_method(names, facts, name)
    if first is not None:
        from specdec_cli.demo.report import print_answer

        print_answer(target, first, replace(base, temperature=0.0), prompts[0], is_compiled=is_compiled)
    contenders, missed = [BASELINE], dict[str, LeftOut]()
    for method in names:
        try:
            fitting = configured(method, facts, name)
        except (ConfigError, PluginError) as error:
            missed[method] = left_out(method, error)
        else:
            strict = {**fitting.config, "on_proposer_error": "raise"}
            contenders.append(replace(fitting, config=strict))

    def fail(contender: Contender, error: Exception) -> None:
        assert contender.method is not None
        missed[contender.method] = left_out(contender.method, error)

    workloads = [replace(base, temperature=temperature) for temperature in TEMPERATURES]
    with _one_line(rounds * len(workloads) * len(contenders) * len(tokens)) as steps:
        comparisons = [
            Comparison(target, workload, contenders, steps.advance, fail) for workload in workloads
        ]
        num_rounds = _run(comparisons, rounds, steps)
    rows = [
        {"temperature": workload.temperature, **row}
        for comparison, workload in zip(comparisons, workloads, strict=True)
        for row in comparison.rows()
    ]
    settings = environment(target, workloads[0], num_rounds)
    settings["temperature"] = list(TEMPERATURES)
    if as_json:
        reasons = [{"method": entry.method, "reason": entry.reason} for entry in missed.values()]
        print_json({"rows": rows, "left_out": reasons, "environment": settings})
    else:
        from specdec_cli.demo.report import print_demo

        print_demo(rows, list(missed.values()), settings)
    return all(row["identical_to_baseline"] for row in rows)


def _chosen(model: str | None) -> str:
    """Return the model's name after checking that it is installed.

    Raises:
        ConfigError: for a model that is not one of the two, or not installed.
    """
    if model is None:
        return choose_model("the demo")
    if model not in (ZOO, *PACKAGED):
        raise ConfigError(f"--model: {model!r} is not one of {', '.join((*PACKAGED, ZOO))}")
    if model in PACKAGED:
        packaged_model(model)
    return model


def _prompts(model: str, count: int) -> Sequence[str]:
    """Return questions for a chat model, or code prefixes for the zoo's model."""
    if model in PACKAGED:
        from specdec_cli.demo.prompts import CHATS

        return CHATS[:count]
    from specdec_cli.bench.dataset import zoo_prompts

    return zoo_prompts(count)


def _is_compiled() -> bool:
    """Return whether code that models run is compiled for this machine, as it is in most installations."""
    import torch

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kept = [backend.compiled(device) for backend in registry.backends()]
    return any(each.num_ahead + each.num_kept for each in kept if each is not None)


def _has_compiled_loops() -> bool:
    """Return whether models run on the CPU through compiled loops, whose results do not depend on the other rows."""
    import torch

    from specdec_kernels.cpu.compiled.threads import is_available

    return not torch.cuda.is_available() and is_available()


def _first_method(names: Sequence[str], facts: TargetFacts, model: str) -> Contender | None:
    """Return the first of the methods that fits the model: `auto`, where it is installed."""
    from specdec_cli.bench.candidates import configured

    for name in names:
        with suppress(ConfigError, PluginError):
            return configured(name, facts, model)
    return None


@contextmanager
def _one_line(total: float) -> Iterator[Steps]:
    """Show the progress of the measurements in one line, which tells of compiling too."""
    with progress("measuring", total) as steps:

        def tell(_: logging.LogRecord) -> bool:
            steps.tell("compiling for this machine, once")
            return False

        logger = logging.getLogger("specdec.compiled")
        logger.addFilter(tell)
        try:
            yield steps
        finally:
            logger.removeFilter(tell)


def _run(comparisons: Sequence[Comparison], most: int, steps: Steps) -> int:
    """Run rounds, each of all comparisons, until the time is used up; return the number of rounds.

    Args:
        comparisons: what to run.
        most: the most rounds; the progress line expects them, and fewer as soon as that is known, so that it never goes back.
        steps: of the progress line.
    """
    started = perf_counter()
    for done in range(1, most + 1):
        before = steps.done
        for comparison in comparisons:
            comparison.run_round()
        most = min(most, max(1, int(SECONDS * done / (perf_counter() - started))))
        steps.expect(steps.done + (most - done) * (steps.done - before))
        if done >= most:
            return done
    return most
