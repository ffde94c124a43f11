"""Spec-Bench (arXiv 2401.07851): six tasks of 80 questions each."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any

from specdec import ConfigError
from specdec_cli.bench.lines import json_lines
from specdec_cli.bench.suites.question import Question, Suite

NAME = "spec_bench"
MT_BENCH = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
"""Categories that the paper reports together: ten questions each, with two turns."""
TASKS = MappingProxyType(
    {
        **dict.fromkeys(MT_BENCH, "multi-turn conversation"),
        "translation": "translation",
        "summarization": "summarization",
        "qa": "question answering",
        "math_reasoning": "mathematical reasoning",
        "rag": "retrieval-augmented generation",
    }
)
"""Maps each category of the file to a task of the paper's tables."""


def read_spec_bench(path: Path | None) -> Suite:
    """Read a file in the format of Spec-Bench's `question.jsonl`: `question_id`, `category` and `turns` a line.

    Categories that are not Spec-Bench's are their own tasks.

    Raises:
        ConfigError: without a file, and for an invalid one, naming the line.
    """
    if path is None:
        raise ConfigError(
            f"--suite {NAME} needs a file with its questions: data/spec_bench/question.jsonl of "
            "github.com/hemingkx/Spec-Bench"
        )
    questions = tuple(
        Question(number, *_parts(entry, place)) for number, (place, entry) in enumerate(json_lines(path))
    )
    if not questions:
        raise ConfigError(f"{path} holds no questions")
    return Suite(NAME, path, questions, TASKS)


def _parts(entry: Any, place: str) -> tuple[str, tuple[str, ...]]:
    if not isinstance(entry, dict) or not {"category", "turns"} <= entry.keys():
        raise ConfigError(
            f"{place}: a question of {NAME} needs the keys 'category' and 'turns'; for lines with 'prompt' "
            "leave --suite out"
        )
    category, turns = entry["category"], entry["turns"]
    if not isinstance(category, str) or not category:
        raise ConfigError(f"{place}: 'category' must be text, got {category!r}")
    if not isinstance(turns, list) or not turns or not all(isinstance(t, str) and t for t in turns):
        raise ConfigError(f"{place}: 'turns' must be a list of texts, one or more")
    return category, tuple(turns)
