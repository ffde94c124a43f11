"""Suites whose questions are in a file that the user has: Spec-Bench, SPEED-Bench, MT-Bench, GSM8K."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from specdec import ConfigError
from specdec_cli.bench.lines import json_lines
from specdec_cli.bench.suites.question import Question, Suite

MT_BENCH = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
"""Categories that the paper of Spec-Bench reports together: ten questions each, with two turns."""
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
"""Maps each category of Spec-Bench's file to a task of the paper's tables."""
PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED"
"""What SPEED-Bench's published files have for questions whose licence forbids to pass them on."""


@dataclass(frozen=True)
class QuestionFile:
    """A suite read from lines of JSON, each a question with `category` and `turns`.

    Args:
        name: of the suite.
        where: the file, for those who have none.
        text: the key of a single turn, in files without `category` and `turns`; the suite is then one category.
        tasks: maps categories to tasks; a missing one is its own task.
    """

    name: str
    where: str
    text: str | None = None
    tasks: Mapping[str, str] = field(default_factory=dict)

    def read(self, path: Path | None) -> Suite:
        """Read the file.

        Raises:
            ConfigError: without a file, and for an invalid one, naming the line.
        """
        if path is None:
            raise ConfigError(f"--suite {self.name} needs a file with its questions: {self.where}")
        questions = tuple(
            Question(number, *self._parts(entry, place))
            for number, (place, entry) in enumerate(json_lines(path))
        )
        if not questions:
            raise ConfigError(f"{path} holds no questions")
        return Suite(self.name, path, questions, self.tasks)

    def _parts(self, entry: Any, place: str) -> tuple[str, tuple[str, ...]]:
        keys = {"category", "turns"} if self.text is None else {self.text}
        if not isinstance(entry, dict) or not keys <= entry.keys():
            raise ConfigError(
                f"{place}: a question of {self.name} needs the key{'s' * (len(keys) > 1)} "
                f"{' and '.join(map(repr, sorted(keys)))}; for lines with 'prompt' leave --suite out"
            )
        category, turns = (
            (entry["category"], entry["turns"]) if self.text is None else (self.name, [entry[self.text]])
        )
        if not isinstance(category, str) or not category:
            raise ConfigError(f"{place}: 'category' must be text, got {category!r}")
        if not isinstance(turns, list) or not turns or not all(isinstance(t, str) and t for t in turns):
            raise ConfigError(f"{place}: {self.text or 'turns'!r} must be a list of texts, one or more")
        if any(turn.startswith(PLACEHOLDER) for turn in turns):
            raise ConfigError(
                f"{place}: the question itself is missing: fill the file with the publisher's script first"
            )
        return category, tuple(turns)


FILES = (
    QuestionFile(
        "spec_bench", "data/spec_bench/question.jsonl of github.com/hemingkx/Spec-Bench", tasks=TASKS
    ),
    QuestionFile("speed_bench", "a split of huggingface.co/datasets/nvidia/SPEED-Bench as lines of JSON"),
    QuestionFile("mt_bench", "fastchat/llm_judge/data/mt_bench/question.jsonl of github.com/lm-sys/FastChat"),
    QuestionFile(
        "gsm8k", "grade_school_math/data/test.jsonl of github.com/openai/grade-school-math", text="question"
    ),
)
