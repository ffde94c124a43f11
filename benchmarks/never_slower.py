"""`adaptive` beside every fixed k and plain decoding, and `auto` beside single methods: ten workloads, one table.

    python benchmarks/never_slower.py [--model smollm2] [--batch-sizes 1 8 32] [--rounds 6] [--quick] [--json OUT]

A workload is a method on one kind of text at one temperature. All contenders of a workload are engines over one loaded target,
which take turns on the same new prompts in each round; their texts must be equal. The goals: `adaptive` at least 0.95 times
the fixed k with the highest median, and 0.98 times plain decoding.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.provenance import provenance
from common.results import RESULTS, write
from common.stats import PairedRatio, paired_ratio

import specdec_zoo
from specdec import LLM, EngineOptions, SamplingParams
from specdec.metrics import Counter
from specdec_cli.bench import BASELINE, Contender
from specdec_runtime.loading import LoadedTarget, load_target

_HEAD: dict[str, Any] = {"method": "eagle3", "model": "zoo"}
WORKLOADS: tuple[tuple[dict[str, Any], tuple[int, ...], str, float], ...] = (
    ({"method": "suffix"}, (4, 24), "repetition", 0.0),
    ({"method": "suffix"}, (4, 24), "edit", 0.8),
    ({"method": "suffix"}, (4, 24), "docstring", 1.0),
    ({"method": "ngram"}, (3, 8), "function", 0.8),
    ({"method": "ngram"}, (3, 8), "docstring", 1.0),
    (_HEAD, (2, 4), "function", 0.0),
    (_HEAD, (2, 4), "docstring", 1.0),
    ({"method": "self"}, (2, 4), "edit", 0.8),
    ({"method": "self"}, (2, 4), "docstring", 1.0),
    ({"method": "recycling"}, (4, 8), "function", 0.8),
)
"""Method, fixed numbers of tokens, kind of the zoo's prompts, temperature; some are such that no draft pays."""
SINGLE = ({"method": "suffix"}, {"method": "self"}, _HEAD | {"num_speculative_tokens": 4})
"""What `auto` is compared with."""


@dataclass(frozen=True)
class Row:
    """One contender of one workload."""

    workload: str
    batch_size: int
    name: str
    tokens_per_step: float
    plain: PairedRatio
    """Its speed over that of plain decoding."""
    best: PairedRatio | None = None
    """Its speed over that of the best other contender but plain; for `adaptive` and `auto`."""

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON, rounded."""
        shown = {
            name: [round(value, 3) for value in (ratio.median, ratio.low, ratio.high)]
            for name, ratio in (("times_plain", self.plain), ("times_best", self.best))
            if ratio is not None
        }
        return {
            "workload": self.workload,
            "batch_size": self.batch_size,
            "name": self.name,
            "tokens_per_step": round(self.tokens_per_step, 2),
            **shown,
        }


@dataclass
class Times:
    """What one contender took."""

    seconds: list[float] = field(default_factory=list)
    """By round."""
    num_tokens: int = 0
    num_steps: int = 0

    def add(
        self, llm: LLM, prompts: list[list[int]], params: list[SamplingParams], *, is_counted: bool
    ) -> list[list[int]]:
        """Generate once, measured if it `is_counted`; returns the tokens."""
        before = steps_of(llm)
        began = time.perf_counter()
        outputs = llm.generate(list(prompts), params, use_tqdm=False)
        seconds = time.perf_counter() - began
        found = [output.outputs[0].token_ids for output in outputs]
        if is_counted:
            self.seconds.append(seconds)
            self.num_tokens += sum(map(len, found))
            self.num_steps += steps_of(llm) - before
        return found


def steps_of(llm: LLM) -> int:
    """Return how many steps an engine ran."""
    return next(
        int(m.value) for m in llm.get_metrics() if m.name == "specdec:num_steps" and isinstance(m, Counter)
    )


def contenders_of(method: dict[str, Any], fixed: Sequence[int]) -> list[Contender]:
    """Return plain decoding, the method with each fixed k, and adaptive up to the highest."""
    keys = [(f"k={k}", {"num_speculative_tokens": k, "adaptive": False}) for k in fixed]
    keys.append(("adaptive", {"num_speculative_tokens": max(fixed), "adaptive": True}))
    return [BASELINE, *(Contender(name, method["method"], method | own) for name, own in keys)]


def prompts_of(target: LoadedTarget, kind: str | None) -> list[list[int]]:
    """Return the tokens of the zoo's prompts of a kind."""
    assert target.tokenizer is not None
    texts = [prompt["prompt"] for prompt in specdec_zoo.prompts(kind=kind)]
    return [list(target.tokenizer(text)["input_ids"]) for text in texts]


def measured(
    target: LoadedTarget,
    contenders: Sequence[Contender],
    prompts: Sequence[list[int]],
    batch_size: int,
    temperature: float,
    num_tokens: int,
    rounds: int,
) -> list[Times]:
    """Return the times of each contender; raises if their texts differ."""
    llms = [
        LLM(target, speculative_config=c.config, max_num_seqs=batch_size, deterministic=True)
        for c in contenders
    ]
    times = [Times() for _ in contenders]
    count = max(batch_size, 2)
    for number in range(rounds + 1):  # the first one warms up
        first = number * count
        chosen = [prompts[(first + place) % len(prompts)] for place in range(count)]
        params = [
            SamplingParams(
                temperature=temperature, seed=first + place, max_tokens=num_tokens, ignore_eos=True
            )
            for place in range(count)
        ]
        texts: list[list[int]] | None = None
        for place in range(len(contenders)):
            index = (place + number) % len(contenders)
            found = times[index].add(llms[index], chosen, params, is_counted=number > 0)
            if texts is not None and found != texts:
                raise RuntimeError(f"{contenders[index].name}: the text is another one")
            texts = found
    for llm in llms:
        llm.shutdown()
    return times


def rows_of(
    name: str, batch_size: int, contenders: Sequence[Contender], times: Sequence[Times], judged: str
) -> list[Row]:
    """Return a row for each contender but plain; `judged` is compared with the best other one."""
    seconds = [own.seconds for own in times]
    ratios = [paired_ratio(seconds[0], own) for own in seconds]
    others = [i for i, contender in enumerate(contenders) if i and contender.name != judged]
    best = max(others, key=lambda index: ratios[index].median)
    return [
        Row(
            name,
            batch_size,
            contender.name,
            own.num_tokens / own.num_steps,
            ratio,
            paired_ratio(seconds[best], own.seconds) if contender.name == judged else None,
        )
        for contender, own, ratio in zip(contenders[1:], times[1:], ratios[1:], strict=True)
    ]


def table(rows: Sequence[Row]) -> str:
    """Return the rows as Markdown, with the goals that are missed."""
    lines = [
        "| workload | batch | drafts | tokens a step | times plain | times best |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        best = "" if row.best is None else str(row.best)
        cells = [
            row.workload,
            str(row.batch_size),
            row.name,
            f"{row.tokens_per_step:.2f}",
            str(row.plain),
            best,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    judged = [row for row in rows if row.best is not None and row.name == "adaptive"]
    missed = [
        f"{r.workload}, batch {r.batch_size}" for r in judged if r.best is not None and r.best.median < 0.95
    ]
    missed += [f"{r.workload}, batch {r.batch_size}" for r in judged if r.plain.median < 0.98]
    return "\n".join([*lines, f"missed: {'; '.join(missed) or 'nothing'}"])


def main() -> int:
    """Measure, print the table, write the result."""
    parser = argparse.ArgumentParser(description="adaptive and auto beside fixed drafts and plain decoding")
    add = parser.add_argument
    add("--model", default="zoo")
    add("--dtype", default="auto")
    add("--batch-sizes", type=int, nargs="+", default=[1, 8, 32])
    add("--rounds", type=int, default=6)
    add("--max-tokens", type=int, default=128)
    add("--workloads", type=int, nargs="*", help="numbers from 0, none for `auto` alone (default: all)")
    add("--json", type=Path, help="where to write the result (default: benchmarks/results, not with --quick)")
    add("--quick", action="store_true", help="a smoke run: two workloads, one round of 16 tokens")
    arguments = parser.parse_args()
    began = provenance()
    target = load_target(EngineOptions(model=arguments.model, dtype=arguments.dtype))
    rounds, num_tokens = (1, 16) if arguments.quick else (arguments.rounds, arguments.max_tokens)
    sizes = [1] if arguments.quick else arguments.batch_sizes
    numbers = (
        arguments.workloads
        if arguments.workloads is not None
        else range(2 if arguments.quick else len(WORKLOADS))
    )
    rows = []
    for batch_size in sizes:
        for number in numbers:
            method, fixed, kind, temperature = WORKLOADS[number]
            contenders = contenders_of(method, fixed)
            prompts = prompts_of(target, kind)
            times = measured(target, contenders, prompts, batch_size, temperature, num_tokens, rounds)
            name = f"{method['method']}, {kind}, {temperature}"
            rows += rows_of(name, batch_size, contenders, times, "adaptive")
            print(table(rows[-len(fixed) - 1 :]), flush=True)
    for temperature in (0.0, 0.8):
        contenders = [
            BASELINE,
            *(Contender(c["method"], c["method"], c | {"adaptive": False}) for c in SINGLE),
        ]
        contenders.append(Contender("auto", "auto", {"method": "auto"}))
        times = measured(target, contenders, prompts_of(target, None), 1, temperature, num_tokens, rounds)
        rows += rows_of(f"all kinds, {temperature}", 1, contenders, times, "auto")
    print(table(rows))
    file = arguments.json or (None if arguments.quick else RESULTS / "never_slower.json")
    if file is not None:
        settings = {"model": arguments.model, "max_tokens": num_tokens, "rounds": rounds}
        write({"environment": began, "settings": settings, "rows": [row.as_dict() for row in rows]}, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
