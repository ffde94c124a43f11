"""`specdec demo`: every installed method at work on the built-in models."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from specdec import hookimpl
from specdec.cli.output import print_json, progress

if TYPE_CHECKING:
    from specdec.bench import Comparison, Contender, Workload
    from specdec.bench.candidates import LeftOut
    from specdec.loading.target import LoadedTarget

TEMPERATURES = (0.8, 0.0)
MOST_PROMPTS = 8
MIN_ROUNDS = 2
SECONDS = 90.0
"""No further round is begun once this much time is likely to be exceeded."""


@hookimpl
def specdec_register_commands(app: typer.Typer) -> None:
    """Add `specdec demo`."""
    app.command("demo")(demo)


def demo(
    num_prompts: Annotated[
        int | None,
        typer.Option(
            min=1, help=f"Held-out prompts of the zoo; default: what time allows, up to {MOST_PROMPTS}."
        ),
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="The most tokens to generate per prompt.")] = 64,
    rounds: Annotated[
        int, typer.Option(min=1, help="Turns of every method at most; fewer where time is short.")
    ] = 6,
    seed: Annotated[int, typer.Option(help="Prompt i is sampled with seed SEED + i.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """See speculative decoding at work on the built-in models.

    Plain decoding and every installed method generate the same texts; the text must not change. The exit code
    is 1 if it does.
    """
    from specdec.bench import BASELINE, Comparison, Workload, environment
    from specdec.bench.dataset import tokenize, zoo_prompts
    from specdec.cli.bench.command import advance
    from specdec.cli.quiet import hush_libraries
    from specdec.config.zoo import ZOO
    from specdec.engine.options import EngineOptions
    from specdec.loading.target import load_target

    prompts = zoo_prompts(num_prompts or MOST_PROMPTS)
    hush_libraries()
    # With 16 bits logits depend on how many rows a pass has, so that texts could differ without anybody's fault.
    target = load_target(EngineOptions(model=ZOO, dtype="float32"))
    tokens = tokenize(prompts, target.tokenizer, target.max_model_len)
    methods, left_out = _contenders(target, Workload(tokens, max_tokens, seed=seed))
    contenders = [BASELINE, *methods]
    if num_prompts is None:
        tokens = tokens[: _affordable(target, Workload(tokens[:1], max_tokens, seed=seed), len(contenders))]
    workloads = [Workload(tokens, max_tokens, 1, temperature, seed) for temperature in TEMPERATURES]
    total = len(workloads) * rounds * len(contenders) * len(tokens)
    with progress("generating the same texts with every method", total) as display:
        comparisons = [Comparison(target, workload, contenders, advance(display)) for workload in workloads]
        num_rounds = _run(comparisons, rounds)
    rows = [
        {"temperature": workload.temperature, **row}
        for comparison, workload in zip(comparisons, workloads, strict=True)
        for row in comparison.rows()
    ]
    facts = environment(target, workloads[0], num_rounds)
    facts["temperature"] = list(TEMPERATURES)
    if as_json:
        missed = [{"method": entry.method, "reason": entry.reason} for entry in left_out]
        print_json({"rows": rows, "left_out": missed, "environment": facts})
    else:
        from specdec.cli.demo_report import print_demo

        print_demo(rows, left_out, comparisons[0], target, facts)
    if not all(row["identical_to_baseline"] for row in rows):
        raise typer.Exit(1)


def _contenders(target: LoadedTarget, workload: Workload) -> tuple[list[Contender], list[LeftOut]]:
    """Return the installed methods that run on the zoo, and the others with their reasons."""
    from specdec.bench.candidates import LeftOut, contender_for, installed_methods
    from specdec.config.fit import target_facts

    assert target.path is not None
    facts = target_facts(target.path)
    names = installed_methods()
    with progress("trying the installed methods", len(names)) as display:
        tried: list[Contender | LeftOut] = []
        for name in names:
            tried.append(contender_for(name, target, facts, workload))
            if display is not None:
                display.advance(display.task_ids[0])
    return (
        [entry for entry in tried if not isinstance(entry, LeftOut)],
        [entry for entry in tried if isinstance(entry, LeftOut)],
    )


def _affordable(target: LoadedTarget, sample: Workload, num_contenders: int) -> int:
    """Return how many prompts everybody can finish in time, going by plain decoding of one."""
    from specdec.bench import BASELINE, Session

    session = Session(target, BASELINE, sample)
    session.warm_up()
    seconds = session.run().wall_s
    session.close()
    return max(1, int(SECONDS / (MIN_ROUNDS * len(TEMPERATURES) * num_contenders * seconds)))


def _run(comparisons: Sequence[Comparison], most: int) -> int:
    """Run rounds of all comparisons in turn until the time is used up; return how many."""
    started = perf_counter()
    for done in range(1, most + 1):
        for comparison in comparisons:
            comparison.run_round()
        spent = perf_counter() - started
        if done >= MIN_ROUNDS and spent * (done + 1) / done > SECONDS:
            return done
    return most
