"""Load test of `specdec serve`: streams with known outputs, disconnecting and hostile clients, a proposer that raises.

    python benchmarks/server_load.py [--model zoo] [--seconds 300] [--streams 64] [--adaptive] [--quick] [--json OUT]

The command exits with 1 unless every gate holds: no wrong token, no unexpected error, every hostile request answered with
the expected status, some drafts accepted and some calls of the proposer failed, KV cache empty at the end, memory growth
below 5 %, 99 % of `/health` responses within 100 ms and 99 % of two-token completions within 1 s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from common.provenance import load_average, provenance
from load.load import Question, Report, as_text, run_load, until_idle
from load.serving import serving

from specdec import LLM, SamplingParams

FOLDER = Path(__file__).parent
PROMPTS = (
    "import os\nimport sys\n\n\ndef read_lines(path):\n",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    "def main(argv=None):\n    parser = argparse.ArgumentParser()\n",
    "for name, value in sorted(items.items()):\n    print(name, value)\nfor name, value in sorted(",
)
SAMPLED: tuple[dict[str, Any], ...] = ({"temperature": 0}, {"temperature": 0.8, "seed": 7})
NUM_TOKENS = 96
KV_BYTES = 256 * 2**20
"""Small enough that all of it is touched early; until then memory grows."""


def questions_for(model: str) -> list[Question]:
    """Return requests with their outputs from an engine without a server and without drafts."""
    llm = LLM(model=model, deterministic=True)
    asked = [(prompt, params) for prompt in PROMPTS for params in SAMPLED]
    outputs = llm.generate(
        [prompt for prompt, _ in asked],
        [SamplingParams(max_tokens=NUM_TOKENS, ignore_eos=True, **params) for _, params in asked],
    )
    return [
        Question(prompt, params | {"ignore_eos": True}, output.outputs[0].token_ids)
        for (prompt, params), output in zip(asked, outputs, strict=True)
    ]


def serving_words(model: str, *, is_adaptive: bool) -> list[str]:
    """Return the server's arguments: a proposer that fails at random, short timeouts and a small KV cache."""
    speculation = {
        "method": f"{FOLDER / 'load/failing.py'}:FailingProposer",
        "num_speculative_tokens": 4,
        "prompt_lookup_min": 1,
        "adaptive": is_adaptive,
    }
    return [
        model, "--deterministic", "--speculative-config", json.dumps(speculation), "--header-timeout", "5",
        "--body-timeout", "10", "--kv-cache-memory-bytes", str(KV_BYTES), "--max-model-len", "1024",
        "--max-num-seqs", "64",
    ]  # fmt: skip


def percentile(times: list[float], part: float) -> float:
    """Return a quantile of times in seconds; `part` is between 0 and 1."""
    return sorted(times)[min(len(times) - 1, int(part * len(times)))] if times else float("nan")


def findings(report: Report, counters: dict[str, float]) -> dict[str, Any]:
    """Return the measured numbers and the gates."""
    settled = report.rss[len(report.rss) // 4 :] or [1]
    growth = statistics.median(settled[-5:]) / statistics.median(settled[:5]) - 1
    numbers: dict[str, Any] = {
        "streams_right": report.num_right,
        "streams_wrong": report.num_wrong,
        "streams_left": report.num_left,
        "errors": dict(report.errors),
        "hostile": dict(sorted(report.hostile.items())),
        "health_ms": {f"p{q}": round(1e3 * percentile(report.health_s, q / 100), 1) for q in (50, 99, 100)},
        "two_tokens_ms": {
            f"p{q}": round(1e3 * percentile(report.short_s, q / 100), 1) for q in (50, 99, 100)
        },
        "rss_mib": [round(rss / 2**20) for rss in (settled[0], settled[-1])],
        "rss_growth": round(growth, 4),
        "kv_cache_usage": counters["vllm:kv_cache_usage_perc"],
        "proposer_errors": counters["specdec:proposer_errors_total"],
        "accepted_tokens": counters["vllm:spec_decode_num_accepted_tokens_total"],
        "preemptions": counters["vllm:num_preemptions_total"],
    }
    gates = {
        "no wrong token": report.num_wrong == 0 < report.num_right,
        "no error that was not asked for": not report.errors,
        "hostile requests answered right": not any(", not " in told for told in report.hostile),
        "drafts were accepted, and the proposer failed": min(
            numbers["accepted_tokens"], numbers["proposer_errors"]
        )
        > 0,
        "nothing left in the cache": counters["vllm:kv_cache_usage_perc"] == 0,
        "memory flat within 5 %": growth < 0.05,
        "p99 of /health under 100 ms": percentile(report.health_s, 0.99) < 0.1,
        "p99 of two tokens under 1 s": percentile(report.short_s, 0.99) < 1.0,
    }
    return {"numbers": numbers, "gates": gates}


def main() -> int:
    """Run the load test and print the findings."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="zoo")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument(
        "--adaptive", action="store_true", help="let the engine shorten drafts that do not pay"
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run: 8 streams for 10 seconds")
    parser.add_argument(
        "--json",
        type=Path,
        help="where to write the findings (default: benchmarks/results, not with --quick)",
    )
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.streams, arguments.seconds = 8, 10.0
    out = arguments.json or (None if arguments.quick else FOLDER / "results/server_load.json")
    settings = {name: getattr(arguments, name) for name in ("model", "seconds", "streams", "adaptive")}
    environment = provenance()
    questions = questions_for(arguments.model)
    with serving(
        serving_words(arguments.model, is_adaptive=arguments.adaptive), FOLDER / "load/server.log"
    ) as (server, process):

        async def work() -> dict[str, Any]:
            report = await run_load(server, process, questions, arguments.streams, arguments.seconds)
            return findings(report, await until_idle(server, 60.0))

        found = asyncio.run(work())
    found = {
        "settings": settings,
        "environment": environment | {"load_after": load_average()},
        **found,
    }
    print(as_text(found))
    if out is not None:
        out.write_text(as_text(found) + "\n")
    return 0 if all(found["gates"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
