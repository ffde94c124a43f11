"""`specdec tune`: a real search on the zoo, an interrupted one, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specdec import LLM, SamplingParams
from specdec_cli.bench import Session
from specdec_cli.main import run

pytestmark = pytest.mark.slow

CONFIG = json.dumps({"method": "speccheck.proposers.Scripted", "num_speculative_tokens": 2})
METHODS = "ngram,recycling"


def lines(file: Path, prompts: list[list[int]]) -> str:
    file.write_text("".join(json.dumps({"prompt_token_ids": ids}) + "\n" for ids in prompts))
    return str(file)


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A short search among two methods on copied text."""
    monkeypatch.setenv("SPECDEC_PLUGINS", METHODS)
    file = lines(tmp_path / "prompts.jsonl", [[*range(first, first + 12)] * 4 for first in (40, 60, 90)])
    options = ["--minutes", "0.2", "--max-tokens", "16", "--temperature", "0", "--dtype", "float32"]
    outputs = ["--output", str(tmp_path / "found.json"), "--json", str(tmp_path / "report.json")]
    return ["tune", "--prompts", file, *options, *outputs]


def test_a_search_on_the_zoo(command: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(command) == 0
    out, err = capfd.readouterr()
    report: dict[str, Any] = json.loads((tmp_path / "report.json").read_text())
    rows = {row["name"]: row for row in report["rows"]}
    assert next(iter(rows)) == "baseline"
    assert 2 <= len(rows) <= 4
    assert all(row["identical_to_baseline"] for row in rows.values())
    tried = {entry["name"] for entry in report["tried"]}
    late = {entry["name"] for entry in report["left_out"] if "there was no time" in entry["reason"]}
    wanted = {"ngram k=3", "ngram k=6", "ngram k=12", "recycling k=5", "recycling k=10"}
    assert wanted <= tried | late  # a busy machine may have no time for all of them
    assert report["reasons"][0] in " ".join(out.split())
    assert "stage 1, " in err
    assert "last stage, " in err
    config, file = report["speculative_config"], tmp_path / "found.json"
    assert file.exists() == (config is not None)
    if config is not None:
        assert json.loads(file.read_text()) == config
        assert f"{file}: for LLM" in out
    page = (tmp_path / "found.html").read_text()
    assert "specdec tune: prompts on zoo" in page
    assert all(name in page for name in tried)
    assert "by resampling the groups of prompts" in page


def test_what_is_written_is_taken_as_it_is(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "specdec_cli.tune.choice.Choice.config", {"method": "ngram", "num_speculative_tokens": 3}
    )
    assert run([*command, "--minutes", "0.1"]) == 0
    file = tmp_path / "found.json"
    llm = LLM("zoo", dtype="float32", speculative_config=str(file))
    assert llm.method == "ngram"
    params = SamplingParams(temperature=0, max_tokens=12)
    assert llm.generate([[40, 41, 42, 43] * 4], params)[0].metrics.num_drafts > 0
    llm.shutdown()
    assert run(["config", "validate", str(file)]) == 0


def test_ctrl_c_ends_with_the_best_so_far(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    converse, calls = Session.converse, []

    def interrupted(self: Session, *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return converse(self, *arguments)

    monkeypatch.setattr(Session, "converse", interrupted)
    assert run([*command, "--minutes", "5"]) == 130
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["environment"]["interrupted"].startswith("stage 1 of ")
    assert len(report["tried"]) == 5
    assert "The search ended in stage 1 of" in " ".join(capfd.readouterr().out.split())
    assert "The run was interrupted" in (tmp_path / "found.html").read_text()


def test_ctrl_c_before_there_is_anything(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(self: Session, *arguments: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "converse", interrupted)
    assert run(command) == 130
    assert "interrupted before there was anything to report" in capfd.readouterr().err
    assert not (tmp_path / "found.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prompts", "nowhere.jsonl"], "cannot read 'nowhere.jsonl': No such file"),
        ([], "--prompts FILE is missing: what is fastest depends on the text"),
        (["--prompts", "FILE", "--output", "no/such/out.json"], "--output: there is no folder 'no/such'"),
        (["--prompts", "FILE", "--html", "speculative_config.json"], "give two files"),
        (["--prompts", "FILE", "--batch-size", "3"], "the file has 2 prompts, which do not fill a batch"),
        (["--prompts", "FILE", "--minutes", "0"], "Invalid value for '--minutes'"),
        (["--prompts", "FILE", "--speculative-config", "{"], "speculative_config is neither JSON nor YAML"),
        (["--prompts", "FILE", "--speculative-config", CONFIG[:-1] + ', "topk": 2}'], "unknown key 'topk'"),
        (["--prompts", "FILE", "--dtype", "float12"], "dtype='float12' is not one of"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    tiny_model: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    file = lines(tmp_path / "prompts.jsonl", [[7, 8, 9], [5]])
    arguments = [file if argument == "FILE" else argument for argument in arguments]
    assert run(["tune", "--model", tiny_model, *arguments]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert message in err
