"""Submissions that were measured: here and on a server, verified as a stranger would, and forged ones caught."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from arenacheck.by_hand import Change, forge
from servercheck.served import TEMPLATE, Served, serving
from transformers import AutoTokenizer

from specdec_cli.arena.submission import read_submission
from specdec_cli.main import run
from specdec_server import Settings

Json = dict[str, Any]
CONFIG = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
TURNS = (
    ("rag", ["def read_lines(path):\n    return read_lines(path)\n\n\ndef read_lines(", "and the next"]),
    ("qa", ["import os\nimport sys\nimport os\nimport "]),
    ("qa", ["for name in names:\n    print(name)\nfor name in "]),
)


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("suite") / "question.jsonl"
    file.write_text("".join(json.dumps({"category": c, "turns": t}) + "\n" for c, t in TURNS))
    return str(file)


@pytest.fixture(scope="module")
def words(questions: str) -> list[str]:
    sizes = ["--batch-size", "1", "--batch-size", "2"]
    return ["--suite", "spec_bench", "--dataset", questions, "--max-tokens", "12", *sizes]


@pytest.fixture(scope="module")
def small(tiny_model: str, words: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A submission of the tiny model, in float32."""
    out = tmp_path_factory.mktemp("small") / "submission"
    mine = ["--model", tiny_model, "--dtype", "float32", "--speculative-config", json.dumps(CONFIG)]
    assert run(["arena", "run", str(out), *words, *mine, "--stamp-samples", "8"]) == 0
    return out


@pytest.fixture
def copied(small: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small, tmp_path / "copied"))


def _verified(folder: Path, tiny_model: str, questions: str) -> int:
    words = ["--model", tiny_model, "--dataset", questions, "--sample", "100", "--seed", "0"]
    return run(["arena", "verify", str(folder), *words])


def test_a_submission_from_here_holds(
    small: Path, tiny_model: str, questions: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = read_submission(small)
    assert [entry["contestant"] for entry in found.facts.numbers] == ["plain", "ngram k=4"] * 2
    assert {(row.question, row.turn) for row in found.rows} == {(0, 0), (0, 1), (1, 0), (2, 0)}
    assert all(entry["same_text"] in (None, 1.0) for entry in found.facts.numbers)
    assert found.facts.numbers[1]["by_category"]["overall"]["tokens_per_step"] > 1
    assert found.facts.stamps["ngram k=4"]["greedy"]["equal"] == 16
    assert str(tiny_model) not in json.dumps([c.model_dump() for c in found.facts.contestants])
    assert _verified(small, tiny_model, questions) == 0
    said = capsys.readouterr().out
    assert "16 of 16 rows and 32 of 32 greedy rows of the stamp, generated again, are the target's" in said


def _others_text(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    """Both contestants say the same wrong token."""
    for row in rows:
        if (row["question"], row["turn"]) == (1, 0):
            row["tokens"][5] += 1


def _others_text_in_the_stamp(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    for row in stamp:
        if not row["temperature"] and row["prompt"] == 3:
            row["answers"][0][0] += 1
            if "places" in row:
                row["places"][0] = {str(row["answers"][0][0]): -0.1}


def _other_target(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    told["target"]["sha256"]["config.json"] = "0" * 64


def _swapped_drafter(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    told["contestants"][1]["drafters"] = [{"name": "head", "sha256": {"model.safetensors": "0" * 64}}]


def _other_suite(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    told["suite"]["sha256"] = "0" * 64


def _other_prompts(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    for row in rows:
        if not row["turn"]:
            row["prompt_sha256"] = str(row["question"])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_others_text, "question 1, turn 1: token 6 of its text is"),
        (_others_text_in_the_stamp, "prompt 3: token 1 of its text is"),
        (_other_target, "is not the one that was measured: the hashes of its files differ"),
        (_swapped_drafter, "the drafter of 'ngram k=4' here is not the one of the submission"),
        (_other_suite, "does not hold the questions that were asked: its hash differs"),
        (_other_prompts, "that is not the question, or not the prompt, that its hash is of"),
    ],
)
def test_a_careful_forger_is_caught_with_the_target_at_hand(
    change: Change,
    sentence: str,
    copied: Path,
    tiny_model: str,
    questions: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    forge(copied, change)
    assert run(["arena", "verify", str(copied)]) == 0
    capsys.readouterr()
    assert _verified(copied, tiny_model, questions) == 1
    assert sentence in capsys.readouterr().out


@pytest.fixture(scope="module")
def chat_model(tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The tiny model with a chat template, and room for the prompts of the stamp."""
    folder = Path(shutil.copytree(tiny_model, tmp_path_factory.mktemp("chat") / "model"))
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"max_position_embeddings": 512}))
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def served(chat_model: str) -> Iterator[Served]:
    settings = Settings(model_names=("tiny",), log_every_s=0.0)
    with serving(settings, chat_model, speculative_config=CONFIG) as found:
        yield found


@pytest.mark.slow
def test_a_server_is_a_contestant_and_a_stranger_verifies_it(
    served: Served,
    chat_model: str,
    words: list[str],
    questions: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, board, page = tmp_path / "out", tmp_path / "board", tmp_path / "board.html"
    mine = ["--url", served.url, "--off", '{"speculative": false}', "--api-key", "<secret>"]
    assert run(["arena", "run", str(out), *words, *mine, "--stamp-samples", "64"]) == 0
    assert "secret" not in (out / "arena.json").read_text()
    found = read_submission(out)
    plain, drafting = found.facts.numbers[:2]
    assert (plain["contestant"], drafting["contestant"]) == ("plain", served.url)
    assert (plain["by_category"]["overall"]["tokens_per_step"], drafting["same_text"]) == (1.0, 1.0)
    assert drafting["by_category"]["overall"]["tokens_per_step"] > 1
    assert 0 < drafting["by_category"]["overall"]["acceptance_rate"] < 1
    stamp = found.facts.stamps[served.url]
    assert (stamp["verdict"], stamp["greedy"]["equal"]) == ("lossless", 16), stamp
    assert run(["arena", "submit", str(out), str(board)]) == 0
    (place,) = board.iterdir()
    capsys.readouterr()
    assert _verified(place, chat_model, questions) == 0
    assert "16 of 16 rows" in capsys.readouterr().out
    forge(out, _others_text)
    assert _verified(out, chat_model, questions) == 1
    assert "question 1, turn 1: token 6 of its text is" in capsys.readouterr().out
    assert run(["arena", "page", str(board), str(page)]) == 0
    shown = _Page(page.read_text())
    assert shown.tags.count("table") == 4
    assert not {"script", "link", "img"} & set(shown.tags)
    assert re.search(r"\d+\.\d+x", shown.text)
    assert "lossless" in shown.text


class _Page(HTMLParser):
    """The tags and text of a page; each tag that opens must close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.slow
def test_servers_of_two_models_are_not_mixed(
    served: Served, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(Settings(model_names=("another",), log_every_s=0.0)) as other:
        two = ["--url", served.url, "--plain-url", other.url]
        assert run(["arena", "run", str(tmp_path / "out"), *words, *two]) == 2
    assert "mixed targets: " in capsys.readouterr().err
