"""Rollouts of GRPO with TRL (`pip install trl`), plain and with drafts: equal completions, tokens per second, times of updates.

    python benchmarks/rollouts.py [--json FILE] [OPTIONS OF examples/grpo.py]

All engines generate the same completions in every step, in turn (`examples/grpo.py`). Medians are without the first step.
"""

from __future__ import annotations

import argparse
import json
import runpy
import sys
from importlib.metadata import version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from common.process import BENCHMARKS
from common.provenance import provenance
from common.results import RESULTS


def main() -> int:
    """Train, print and write the result."""
    parser = argparse.ArgumentParser(description="rollouts of GRPO, plain and with drafts")
    parser.add_argument("--json", type=Path, help="where to write the result (default: benchmarks/results)")
    arguments, options = parser.parse_known_args()
    began = provenance()
    with TemporaryDirectory() as folder:
        example = runpy.run_path(str(BENCHMARKS.parent / "examples/grpo.py"))
        found = example["main"]([*options, "--folder", folder])
    plain, rows = found["seconds"]["plain"][1:], []
    for name, seconds in found["seconds"].items():
        speeds = [count / time for count, time in zip(found["num_tokens"], seconds, strict=True)][1:]
        ratios = [other / own for other, own in zip(plain, seconds[1:], strict=True)]
        row = {
            "name": name,
            "tokens_per_s": median(speeds),
            "speedup": median(ratios),
            "update_s": median(found["update_seconds"][name][1:]),
            "accepted": sum(found["num_accepted"][name]) / sum(found["num_tokens"]),
        }
        rows.append({key: value if key == "name" else float(f"{value:.3g}") for key, value in row.items()})
        print(rows[-1])
    content = {
        "environment": began
        | {"versions": {name: version(name) for name in ("trl", "torch", "transformers")}},
        "options": options,
        "rewards": found["rewards"],
        "num_tokens": found["num_tokens"],
        "num_accepted": found["num_accepted"],
        "rows": rows,
    }
    file = arguments.json or RESULTS / "rollouts.json"
    file.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
