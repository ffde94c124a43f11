"""Questions and a tokenizer with a chat template."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from speccheck.saved import tokenizer
from transformers import PreTrainedTokenizerBase

from specdec_cli.bench.suites import Question, Suite

TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
WriteLines = Callable[[list[Any]], Path]


@pytest.fixture
def chat_tokenizer() -> PreTrainedTokenizerBase:
    made = tokenizer()
    made.chat_template = TEMPLATE
    return made


@pytest.fixture
def write_lines(tmp_path: Path) -> WriteLines:
    """Writes values as lines of JSON."""

    def write(values: list[Any]) -> Path:
        file = tmp_path / "questions.jsonl"
        file.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
        return file

    return write


@pytest.fixture
def small_suite() -> Suite:
    """Two tasks, one of them of two categories; one question has two turns."""
    asked = (
        Question(0, "essays", ("write of a dog", "now of a cat")),
        Question(1, "poems", ("a verse",)),
        Question(2, "sums", ("2 + 2 is",)),
        Question(3, "essays", ("write of rain",)),
        Question(4, "sums", ("3 + 4 is",)),
    )
    return Suite("small", Path("small.jsonl"), asked, {"essays": "writing", "poems": "writing"})
