"""What scripts share that try proposers in real engines: the proposers of others, what is printed, and what is kept of it.

Results are in benchmarks/results/hosts.json, from which the table of `docs/hosts.md` is made.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[4]
RESULTS = ROOT / "benchmarks/results/hosts.json"
HOSTILE = {"method": "specdec_testing.hosts.guests.Hostile"}
"""Makes each of eight mistakes in its turn."""
SHOWN = (
    *("num_drafts", "num_draft_tokens", "num_accepted_tokens", "proposer_errors", "proposer_nodes_cut"),
    *("proposer_overruns", "requests_left_out", "requests_held", "adapter_failures"),
)


def of_readme() -> dict[str, Any]:
    """Return the configuration of the proposer in the repository's README, as a third party would have it in a file."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    file = Path(tempfile.mkdtemp()) / "my_proposer.py"
    file.write_text(text.partition("<!-- file: my_proposer.py -->\n```python\n")[2].partition("```")[0])
    return {"method": f"{file}:AfterLast"}


def by_short_name(counters: Mapping[str, Any]) -> dict[str, Any]:
    """Return counters by the parts of their names that are their own."""
    return {name.partition(":")[2].removeprefix("spec_decode_"): value for name, value in counters.items()}


def shown(counters: Mapping[str, Any]) -> str:
    """Return the counters that tell whether all went well, in one line."""
    return ", ".join(f"{name} {counters.get(name, 0)}" for name in SHOWN)


@dataclass(frozen=True)
class Tried:
    """What came of one method in one engine; those of a file differ in the first fields, up to `sampler`."""

    engine: str
    model: str
    method: str
    asked: str
    """`late`, `on_device` or `in_time`."""
    shape: str
    sampler: str
    version: str
    temperatures: str
    num_equal: int
    num_texts: int
    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens: int
    date: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%d"))


def add_shared(parser: argparse.ArgumentParser, num_prompts: int) -> None:
    """Add the arguments that scripts share which ask an engine without speculation, and in a process of its own with it."""
    parser.add_argument("--model", help="directory of the target; default: the zoo's")
    parser.add_argument("--methods", nargs="+", type=json.loads, help="the configurations, one for each run")
    parser.add_argument("--num-prompts", type=int, default=num_prompts)
    parser.add_argument("--num-speculative-tokens", type=int, default=5)
    parser.add_argument("--tensor-parallel", type=int, default=1)
    parser.add_argument("--keep", nargs="?", const=RESULTS, type=Path, help="a file for the results")
    parser.add_argument("--role", choices=("reference", "adapter"), help=argparse.SUPPRESS)
    parser.add_argument("--texts", type=Path, help=argparse.SUPPRESS)


def in_two_processes(environment: Mapping[str, str]) -> int:
    """Run this script as `reference`, which writes texts, then as `adapter`, which compares with them."""
    with tempfile.TemporaryDirectory() as folder:
        texts = ["--texts", str(Path(folder) / "texts.json")]
        for role in ("reference", "adapter"):
            command = [sys.executable, *sys.argv, "--role", role, *texts]
            status = subprocess.run(command, env=os.environ | environment, check=False).returncode
            if status:
                return status
    print("all texts are equal")
    return 0


def target_of(path: str) -> str:
    """Return a target's name for a row."""
    name = Path(path).name
    return "zoo" if name == "target" else "smollm2" if "smollm2" in path.lower() else name


def name_of(config: Mapping[str, Any]) -> str:
    """Return a method's name for a row: a class by its own name, and what else is said of it but files and switches."""
    keys = {"method", "model", "late_drafts", "proposers", "num_speculative_tokens"}
    method = str(config["method"])
    for separator in (":", "."):
        method = method.rpartition(separator)[2]
    if "proposers" in config:
        method += " of " + ", ".join(name_of(member) for member in config["proposers"])
    return " ".join([method, *(f"{name}={value}" for name, value in config.items() if name not in keys)])


def keep(file: Path, rows: list[Tried]) -> None:
    """Put rows in a result file, in the place of older ones of the same engine, model, method and way."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from common.provenance import provenance

    names = [each.name for each in fields(Tried)]
    content = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"rows": []}
    held = {tuple(row[:6]): row for row in content["rows"]}
    held |= {tuple(asdict(row).values())[:6]: [*asdict(row).values()] for row in rows}
    content = {"environment": provenance(), "columns": names, "rows": [held[key] for key in sorted(held)]}
    file.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")
