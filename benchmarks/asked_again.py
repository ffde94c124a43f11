"""Run `specdec bench` on questions that are asked twice: the demo's edits, Spec-Bench's summaries and retrieval.

    python benchmarks/asked_again.py question.jsonl [--each 6] [OPTIONS OF specdec bench]

`question.jsonl` is Spec-Bench's. The second pass asks every question again, so what a method learnt in the first pass
counts. First and second pass are separate categories. Runs are greedy, deterministic and in bfloat16, with prefix caching
enabled as in serving. The default is `suffix` on SmolLM2.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from common.questions import bench

from specdec_bench.demo.prompts import CHATS

TASKS = {"summarization": "summary", "rag": "retrieval"}


def questions(path: Path, each: int) -> list[tuple[str, list[str]]]:
    """Return task and turns of all questions; Spec-Bench contributes `each` per task, evenly spaced over the task."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    found = [("edit", [chat]) for chat in CHATS if not chat.startswith("Summarize")]
    for category, task in TASKS.items():
        of_task = [line["turns"] for line in lines if line["category"] == category]
        found += [(task, of_task[index * len(of_task) // each]) for index in range(each)]
    return found


def main() -> int:
    """Write the questions to a file and run `specdec bench` on it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="Spec-Bench's question.jsonl")
    parser.add_argument("--each", type=int, default=6, help="questions of each task of Spec-Bench")
    arguments, options = parser.parse_known_args()
    try:
        found = questions(arguments.file, arguments.each)
    except (OSError, ValueError, KeyError, IndexError, ZeroDivisionError) as error:
        parser.error(
            f"{arguments.file} with --each {arguments.each} gives no questions of {', '.join(TASKS)}: {error!r}"
        )
    twice = [(f"{task}, {time}", turns) for time in ("first", "again") for task, turns in found]
    return bench(twice, options, '{"method": "suffix"}')


if __name__ == "__main__":
    sys.exit(main())
