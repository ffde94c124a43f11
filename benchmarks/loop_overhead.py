"""Overhead of the verify loop per step at batch 1: step time without proposing, minus the bare forward pass.

    python benchmarks/loop_overhead.py [--quick]

The times per step come from one run of `specdec bench`: score + verify + other - forward, medians. The forward pass has the
same rows. The command exits with 1 if a configuration exceeds the budget.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from common.provenance import provenance
from common.results import RESULTS, write

BUDGET_MS = 0.5
NGRAM = '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1, "prompt_lookup_max": 4}'
_COLUMNS = ("configuration", "step - propose ms", "forward ms", "overhead ms", "of forward", "within budget")


@dataclass(frozen=True)
class Overhead:
    """One row of `specdec bench`, reduced to the loop overhead."""

    name: str
    propose_ms: float
    rest_ms: float
    """The step without proposing."""
    forward_ms: float

    @property
    def overhead_ms(self) -> float:
        """Time outside the forward pass."""
        return self.rest_ms - self.forward_ms

    @classmethod
    def of(cls, row: dict[str, Any]) -> Overhead:
        """Reduce a row of `specdec bench --json`."""
        rest = row["score_ms"] + row["verify_ms"] + row["other_ms"]
        return cls(row["name"], row["propose_ms"], rest, row["forward_ms"])


def bench(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run `specdec bench` at batch 1 and return its JSON result."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "bench.json"
        command = [str(Path(sys.executable).with_name("specdec")), "bench", "--model", arguments.model]
        for config in arguments.speculative_config or [NGRAM]:
            command += ["--speculative-config", config]
        command += ["--batch-size", "1", "--temperature", "0", "--dtype", arguments.dtype]
        command += [
            "--max-tokens",
            "16" if arguments.quick else str(arguments.max_tokens),
            "--json",
            str(out),
        ]
        subprocess.run(command, check=True, stdout=sys.stderr)
        content: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        return content


def table(rows: Sequence[Overhead], budget_ms: float) -> str:
    """Return the rows as a Markdown table."""
    lines = ["| " + " | ".join(_COLUMNS) + " |", "|" + "---|" * len(_COLUMNS)]
    for row in rows:
        verdict = "yes" if row.overhead_ms <= budget_ms else "NO"
        lines.append(
            f"| {row.name} | {row.rest_ms:.3f} | {row.forward_ms:.3f} | {row.overhead_ms:.3f} "
            f"| {row.overhead_ms / row.forward_ms:.0%} | {verdict} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Measure, print the table, write the result."""
    parser = argparse.ArgumentParser(description="what the verify loop costs per step, beside the model")
    add = parser.add_argument
    add("--model", default="zoo", help="folder of a model, or zoo (default)")
    add("--speculative-config", action="append", help="JSON; repeatable (default: ngram with k=4)")
    add("--dtype", default="float32")
    add("--max-tokens", type=int, default=128)
    add("--budget-ms", type=float, default=BUDGET_MS, help=f"most overhead of a step (default {BUDGET_MS})")
    add("--json", type=Path, help="where to write the result (default: benchmarks/results, not with --quick)")
    add("--quick", action="store_true", help="a smoke run: 16 tokens per prompt")
    arguments = parser.parse_args()
    began = provenance()
    measured = bench(arguments)
    rows = [Overhead.of(row) for row in measured["rows"]]
    print(table(rows, arguments.budget_ms))
    file = arguments.json or (None if arguments.quick else RESULTS / "loop_overhead.json")
    if file is not None:
        kept = [{**asdict(row), "overhead_ms": row.overhead_ms} for row in rows]
        write({"environment": began, "budget_ms": arguments.budget_ms, "rows": kept, "bench": measured}, file)
    return 0 if all(row.overhead_ms <= arguments.budget_ms for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
