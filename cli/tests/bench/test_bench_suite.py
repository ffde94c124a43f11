"""`specdec bench --suite`: rows by category, the page, interruptions and mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specdec_cli.bench.suites import SuiteComparison
from specdec_cli.main import run

pytestmark = pytest.mark.slow

CONFIG = json.dumps({"method": "speccheck.proposers.Scripted", "num_speculative_tokens": 2})
CATEGORIES = ("writing", "coding", "qa", "qa", "rag")


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("suite") / "question.jsonl"
    asked: list[dict[str, Any]] = [
        {"question_id": n, "category": category, "turns": [f"def f{n}(self):", "more"][: 2 if n < 2 else 1]}
        for n, category in enumerate(CATEGORIES)
    ]
    asked.append({"question_id": 9, "category": "rag", "turns": ["self.value " * 200]})
    file.write_text("".join(json.dumps(question) + "\n" for question in asked), encoding="utf-8")
    return str(file)


@pytest.fixture
def arguments(tiny_model: str, questions: str) -> list[str]:
    model = ["--model", tiny_model, "--max-tokens", "4", "--speculative-config", CONFIG]
    return ["bench", "--suite", "spec_bench", questions, *model]


def test_rows_categories_and_page(
    arguments: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    out, page = tmp_path / "out.json", tmp_path / "out.html"
    assert run([*arguments, "--json", str(out), "--html", str(page)]) == 0
    report = json.loads(out.read_text())
    assert list(report) == ["rows", "categories", "environment"]
    assert [(row["category"], row["num_prompts"]) for row in report["rows"][::2]] == [
        ("overall", 5),
        ("multi-turn conversation", 2),
        ("question answering", 2),
        ("retrieval-augmented generation", 1),
    ]
    assert [row["category"] for row in report["categories"][::2]] == ["writing", "coding", "qa", "rag"]
    suite = report["environment"]["suite"]
    assert (suite["num_questions"], suite["num_left_out"]) == (5, 1)
    assert (suite["is_chat"], suite["bounds"]) == (False, "questions")
    assert suite["tasks"]["coding"] == "multi-turn conversation"
    assert "1 of 6 questions are left out" in caplog.text
    assert "the model has no chat template" in caplog.text
    text = page.read_text()
    assert "retrieval-augmented generation" in text
    assert "1 more questions are too long" in text
    lines = capfd.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "speed-up" in lines[0]
    assert any(line.split() == ["speed-up", "chat", "QA", "RAG"] for line in lines)


def test_a_sample_takes_as_many_of_each_category(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, "--num-prompts", "3", "--rounds", "6", "--json", "-"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert [row["category"] for row in report["categories"][::2]] == ["writing", "coding", "qa"]
    assert (report["environment"]["rounds"], report["environment"]["suite"]["bounds"]) == (6, "rounds")


def test_an_interrupted_run_writes_what_it_has(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    take_turns = SuiteComparison._take_turns

    def interrupted(self: SuiteComparison, sessions: Any, group: Any, number: int) -> Any:
        if number == 2:
            raise KeyboardInterrupt
        return take_turns(self, sessions, group, number)

    monkeypatch.setattr(SuiteComparison, "_take_turns", interrupted)
    out, page = tmp_path / "out.json", tmp_path / "out.html"
    assert run([*arguments, "--json", str(out), "--html", str(page)]) == 130
    report = json.loads(out.read_text())
    assert report["environment"]["interrupted"] == "2 of 5 questions"
    assert report["rows"][0]["num_prompts"] == 2
    assert "The run was interrupted" in page.read_text()
    assert "interrupted: the report has what all had finished (2 of 5 questions)" in capfd.readouterr().err


def test_a_run_that_fails_writes_what_it_has(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    take_turns = SuiteComparison._take_turns

    def failing(self: SuiteComparison, sessions: Any, group: Any, number: int) -> Any:
        if number == 3:
            raise MemoryError("no room")
        return take_turns(self, sessions, group, number)

    monkeypatch.setattr(SuiteComparison, "_take_turns", failing)
    out = tmp_path / "out.json"
    with pytest.raises(MemoryError, match="no room"):
        run([*arguments, "--json", str(out)])
    assert json.loads(out.read_text())["environment"]["interrupted"] == "3 of 5 questions"
    assert "3 of 5 questions" in capfd.readouterr().err


def test_interrupted_at_once_there_is_nothing_to_write(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(self: SuiteComparison, *rest: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(SuiteComparison, "_take_turns", interrupted)
    assert run(arguments) == 130
    assert "interrupted before there was anything to report" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read "),
        ("{oops\n", "line 1: not JSON"),
        ('{"prompt": "x"}\n', "line 1: a question of spec_bench needs the keys 'category' and 'turns'"),
        ("", "holds no questions"),
        (json.dumps({"category": "qa", "turns": ["self " * 500]}) + "\n", "none of the 1 questions fits"),
    ],
)
def test_wrong_files_are_one_line(
    tiny_model: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    text: str | None,
    message: str,
) -> None:
    file = tmp_path / "wrong.jsonl"
    if text is not None:
        file.write_text(text)
    assert run(["bench", "--model", tiny_model, "--suite", "spec_bench", "--dataset", str(file)]) == 2
    err = capfd.readouterr().err.splitlines()
    assert message in err[-1]
    assert sum("specdec: error: " in line for line in err) == len([line for line in err if line]) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--suite", "mmlu"],
            "--suite: there is no suite 'mmlu'; there are spec_bench, speed_bench, mt_bench",
        ),
        (["--suite", "spec_bench"], "--suite spec_bench needs a file with its questions"),
        (["--suite", "humaneval", __file__], "--suite humaneval brings its own tasks"),
    ],
)
def test_suites_that_cannot_be_had(
    capfd: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run(["bench", *arguments]) == 2
    assert message in capfd.readouterr().err


def test_questions_without_a_suite_get_the_option_told(
    tiny_model: str, questions: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", questions, "--model", tiny_model]) == 2
    assert "for questions with 'turns' add --suite spec_bench" in capfd.readouterr().err
