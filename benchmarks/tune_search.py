"""`specdec tune` beside an exhaustive search of the same configurations, on two workloads that want different methods.

    python benchmarks/tune_search.py [--model smollm2] [--minutes 4] [--workloads copied new] [--quick] [--json OUT]

The exhaustive search runs every configuration that `tune` tried on every prompt, each on an engine of its own, interleaved.
The goal: the configuration that `tune` chose is within 3 % of the fastest one of the exhaustive search.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from common.provenance import provenance
from common.results import RESULTS, write

import specdec_zoo
from specdec.engine_options import EngineOptions
from specdec.loading import load_target
from specdec_bench import Contender, Workload
from specdec_bench.dataset import read_dataset, tokenize
from specdec_bench.speedup import speedup_by_questions
from specdec_bench.tune.candidate import PLAIN, Candidate
from specdec_bench.tune.engine import MeasuredEngine
from specdec_bench.tune.pool import Pool
from specdec_bench.tune.stage import Stage
from specdec_commands.main import run

GOAL = 0.97
LONGEST = 700
"""Characters of the code that is to be written again."""
SUBJECTS = (
    *(
        "a lighthouse keeper",
        "two rival bakers",
        "a robot that learns to paint",
        "a lost umbrella",
        "the first day of spring",
    ),
    *(
        "a train that never stops",
        "an old map",
        "a village without clocks",
        "a violin",
        "the last library",
        "a garden on the moon",
    ),
    *(
        "a letter that arrives late",
        "a fox and a well",
        "a storm at sea",
        "a market at night",
        "a bridge between two towns",
    ),
)


def prompts_of(workload: str) -> tuple[list[str], float]:
    """Return the prompts of a workload, and its temperature: `copied` asks for code that is given, `new` for stories."""
    if workload == "new":
        return [f"Write a short story about {subject}." for subject in SUBJECTS], 0.8
    codes = [prompt["prompt"][-LONGEST:] for prompt in specdec_zoo.prompts(limit=len(SUBJECTS))]
    return [f"Write this Python code again, unchanged:\n\n{code}" for code in codes], 0.0


def tuned(arguments: argparse.Namespace, file: Path, temperature: float) -> tuple[dict[str, Any], float]:
    """Return the report of `specdec tune`, and the seconds that it took."""
    folder = file.parent
    report = folder / "report.json"
    command = [
        "tune",
        "--model",
        arguments.model,
        "--prompts",
        str(file),
        "--minutes",
        f"{arguments.minutes:g}",
    ]
    command += [
        "--temperature",
        f"{temperature:g}",
        "--max-tokens",
        str(arguments.max_tokens),
        "--deterministic",
    ]
    command += ["--output", str(folder / "config.json"), "--json", str(report)]
    began = perf_counter()
    if run(command):
        raise RuntimeError("specdec tune failed")
    seconds = perf_counter() - began
    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return found, seconds


def exhaustive(
    arguments: argparse.Namespace, file: Path, temperature: float, tried: list[dict[str, Any]]
) -> Stage:
    """Return a stage in which all configurations have answered all prompts."""
    target = load_target(EngineOptions(model=arguments.model, deterministic=True))
    prompts = tokenize(read_dataset(file), target.tokenizer, target.max_model_len)
    target = replace(target, max_model_len=max(map(len, prompts)) + arguments.max_tokens)
    workload = Workload(prompts, arguments.max_tokens, temperature=temperature, is_deterministic=True)
    contenders = [Contender(entry["name"], entry["config"]["method"], entry["config"]) for entry in tried]
    candidates = [PLAIN, *(Candidate(contender, 1000, "several", contender) for contender in contenders)]
    stage = Stage(1, candidates, arguments.max_tokens, is_exact=True)
    pool = Pool(lambda contender: MeasuredEngine(target, workload, contender))
    stage.prepare(pool)
    stage.run(pool, [[number] for number in range(len(prompts))], inf)
    pool.keep([])
    return stage


def row_of(workload: str, report: dict[str, Any], seconds: float, stage: Stage) -> dict[str, Any]:
    """Return what both searches found, and how the chosen configuration compares with the best."""
    chosen = "baseline" if report["speculative_config"] is None else report["tried"][0]["name"]
    speedups = {candidate.name: stage.speedup(candidate) for candidate in stage.candidates}
    best = max(speedups, key=lambda name: speedups[name][0])
    ratio = speedup_by_questions([stage.turns[chosen]], [stage.turns[best]])
    rounded = {
        name: [round(value, 3) for value in speedups[name]]
        for name in sorted(speedups, key=speedups.__getitem__)[::-1]
    }
    return {
        "workload": workload,
        "chosen": chosen,
        "config": report["speculative_config"],
        "tune_seconds": round(seconds),
        "best": best,
        "chosen_over_best": [round(value, 3) for value in ratio],
        "num_prompts": stage.num_groups,
        "speedups": rounded,
    }


def main() -> int:
    """Search, print, write the result."""
    parser = argparse.ArgumentParser(description="specdec tune beside an exhaustive search")
    add = parser.add_argument
    add("--model", default="smollm2")
    add("--minutes", type=float, default=4.0)
    add("--max-tokens", type=int, default=64)
    add("--workloads", nargs="+", choices=["copied", "new"], default=["copied", "new"])
    add("--json", type=Path, help="where to write the result (default: benchmarks/results, not with --quick)")
    add("--quick", action="store_true", help="a smoke run: two short prompts")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.minutes, arguments.max_tokens = 0.1, 8
    began = provenance()
    rows = []
    for workload in arguments.workloads:
        prompts, temperature = prompts_of(workload)
        with TemporaryDirectory() as folder:
            file = Path(folder) / "prompts.jsonl"
            chosen = prompts[:2] if arguments.quick else prompts
            file.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in chosen), encoding="utf-8")
            report, seconds = tuned(arguments, file, temperature)
            stage = exhaustive(arguments, file, temperature, report["tried"])
        rows.append(row_of(workload, report, seconds, stage))
        row = rows[-1]
        print(
            f"{workload}: chosen {row['chosen']}, best {row['best']}, chosen over best {row['chosen_over_best']}",
            flush=True,
        )
    settings = {"model": arguments.model, "minutes": arguments.minutes, "max_tokens": arguments.max_tokens}
    result: Path | None = arguments.json or (None if arguments.quick else RESULTS / "tune_search.json")
    if result is not None:
        write({"environment": began, "settings": settings, "rows": rows}, result)
    missed = [row["workload"] for row in rows if row["chosen_over_best"][0] < GOAL]
    print(f"missed: {', '.join(missed) or 'nothing'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
