"""Runs `specdec bench` on questions that a benchmark writes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

DEFAULTS = (
    "--model", "smollm2", "--max-tokens", "256", "--temperature", "0", "--dtype", "bfloat16", "--deterministic",
    "--enable-prefix-caching",
)  # fmt: skip


def bench(questions: Iterable[tuple[str, Sequence[str]]], options: Sequence[str], config: str) -> int:
    """Run `specdec bench` on SmolLM2, greedy, deterministic, in bfloat16, with prefix caching enabled as in serving.

    Args:
        questions: category and turns of each.
        options: further options of `specdec bench`, which go before those here.
        config: what is measured if the options have no configuration.

    Returns:
        the exit status.
    """
    if not any(option.startswith("--speculative-config") for option in options):
        options = [*options, "--speculative-config", config]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "questions.jsonl"
        lines = (json.dumps({"category": category, "turns": list(turns)}) for category, turns in questions)
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        command = [
            str(Path(sys.executable).with_name("specdec")),
            "bench",
            "--suite",
            "spec_bench",
            str(file),
        ]
        return subprocess.run([*command, *DEFAULTS, *options], check=False).returncode
