"""Submissions made by hand: their numbers, their stamp, and forgeries that need no model to be caught."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from arenacheck.by_hand import NGRAM, Change, facts, forge, rows_by_hand, stamp_by_hand

from specdec_cli.arena.numbers import numbers
from specdec_cli.arena.stamp import stamps
from specdec_cli.arena.submission import PLAIN, Contestant
from specdec_cli.main import run

Json = dict[str, Any]
MIXED = [[1, 2]] * 100 + [[1, 3]] * 100


def test_numbers_by_hand() -> None:
    plain, drafting = numbers(rows_by_hand())
    assert (plain["contestant"], plain["tokens"], plain["ratio"]) == (PLAIN, 12, None)
    assert plain["tokens_per_s"] == pytest.approx(12 / 0.12)
    assert plain["ttft_ms"] == pytest.approx([10, 10, 10])
    assert plain["itl_ms"] == pytest.approx([10, 10, 10])
    assert drafting["tokens_per_s"] == pytest.approx(12 / 0.09)
    assert drafting["ratio"] == pytest.approx([4 / 3, 1, 2])
    assert drafting["tpot_ms"] == pytest.approx([7.0, 9.7, 9.94])  # of 4 ms and 10 ms
    assert drafting["same_text"] == 1.0
    # Of question 1 the step in the middle counts: 2 of 2 drafted tokens were accepted. The end cut the last one.
    assert drafting["by_category"] == {
        "overall": {"acceptance_rate": 1.0, "tokens_per_step": pytest.approx(12 / 9)},
        "rag": {"acceptance_rate": None, "tokens_per_step": 1.0},
        "qa": {"acceptance_rate": 1.0, "tokens_per_step": 2.0},
    }


@pytest.mark.parametrize(
    ("answer", "samples", "drafted", "verdict"),
    [
        ([5, 5, 5], MIXED, 4, "lossless"),
        ([5, 6, 5], MIXED, 4, "not lossless"),
        ([5, 5, 5], [[1, 3]] * 200, 4, "not lossless"),
        ([5, 5, 5], MIXED, 0, "undecided"),
        ([5, 5, 5], MIXED[90:110], 4, "undecided"),
    ],
    ids=["equal", "a token", "the distribution", "nothing drafted", "too few samples"],
)
def test_stamps(answer: list[int], samples: list[list[int]], drafted: int, verdict: str) -> None:
    expected = MIXED if len(samples) == len(MIXED) else samples
    rows = [row.model_copy(update={"drafted": drafted}) for row in stamp_by_hand()]
    rows[1] = rows[1].model_copy(update={"answers": expected})
    for place, changed in ((2, [answer]), (3, samples)):
        rows[place] = rows[place].model_copy(update={"answers": changed})
    found = stamps(rows, facts()["contestants"])[NGRAM]
    assert found["verdict"] == verdict
    assert (found["greedy"]["first"] is not None) is (answer == [5, 6, 5])
    if answer == [5, 6, 5]:
        assert found["greedy"]["first"] == {
            "prompt": 0,
            "token": 1,
            "gap_nats": pytest.approx(2.4),
            "at_least": False,
        }


def test_a_server_with_a_gap_that_16_bits_may_explain_is_undecided() -> None:
    rows = stamp_by_hand()
    rows[0] = rows[0].model_copy(update={"places": [{"5": -0.7, "6": -0.9}] * 3})
    rows[2] = rows[2].model_copy(update={"answers": [[5, 6, 5]]})
    for url, verdict in ((None, "not lossless"), ("http://127.0.0.1:1", "undecided")):
        contestant = Contestant(name=NGRAM, acceptance="real", url=url)
        assert stamps(rows, [contestant])[NGRAM]["verdict"] == verdict


def test_what_is_in_order_is_verified_and_packed_and_shown(
    by_hand: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    board, page = tmp_path / "board", tmp_path / "board.html"
    assert run(["arena", "verify", str(by_hand)]) == 0
    assert capsys.readouterr().out == "verified: numbers, hashes and times hold\n"
    assert run(["arena", "submit", str(by_hand), str(board)]) == 0
    place = Path(capsys.readouterr().out.strip())
    assert sorted(file.name for file in place.iterdir()) == ["arena.json", "rows.jsonl.gz", "stamp.jsonl.gz"]
    assert run(["arena", "verify", str(place)]) == 0
    assert run(["arena", "submit", str(by_hand), str(board)]) == 2
    assert "were submitted before" in capsys.readouterr().err
    assert run(["arena", "page", str(board), str(page)]) == 0
    text = page.read_text()
    assert "133.3</td>" in text
    assert "1.33x" in text
    assert '<td class="">undecided</td>' in text
    assert "Synthetic acceptance" not in text
    assert "the samples are too few to find a difference" in text
    assert "<script" not in text
    assert "http" not in text


def test_synthetic_acceptance_stands_apart(tmp_path: Path) -> None:
    from specdec_cli.arena.page import cells, tables
    from specdec_cli.arena.submission import read_submission, write_submission

    synthetic = Contestant(name=NGRAM, acceptance="synthetic", config={"synthetic_acceptance_rate": 0.5})
    write_submission(tmp_path, facts(synthetic), rows_by_hand(), [])
    told = read_submission(tmp_path).facts
    assert told.stamps == {}
    (table,) = tables([told])
    assert table.is_synthetic
    assert [cells(*row)[4] for row in table.ranked] == ["synthetic", "-"]


def _edited_row(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    rows[3]["start"] += 0.001


def _edited_summary(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    told["numbers"][1]["tokens_per_s"] *= 1.1


def _edited_stamp(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    told["stamps"][NGRAM]["verdict"] = "better than lossless"


def _tokens_from_nowhere(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    rows[3]["tokens"].append(9)


def _more_than_a_draft(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    rows[3]["steps"][1] = [0.02, 3, 1, 1]


def _back_in_time(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    rows[3]["steps"][2][0] = 0.015


def _overlapping_turns(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    rows[3]["start"] = 0.24


def _overlapping_requests(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    for place, group in ((1, 0), (3, 0)):
        rows[place]["group"] = group
    rows[3]["start"] = rows[1]["start"] + 0.01


def _left_out_question(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    del rows[1]


def _other_question(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    rows[3]["prompt_sha256"] = "an easier one"


def _called_real(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    told["contestants"][1]["config"] = {"method": "ngram", "synthetic_acceptance_rate": 0.9}


def _drafter_without_a_hash(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    told["contestants"][1]["config"] = {"method": "eagle3", "model": "another"}


def _drafts_of_plain(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    rows[0]["steps"] = [[0.01, 6, 5, 5]]


def _more_tokens_than_asked(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    told["max_tokens"] = 5


def _unknown_contestant(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    rows[3]["contestant"] = "somebody"


def _fewer_samples(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    told["stamp_samples"] = 3


def _without_hashes(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    told["rows_sha256"] = {}


def _hash_of_another_file(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    told["rows_sha256"] = {"../secret": "00"}


def _without_a_machine(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    del told["environment"]["cpu"]


def _probabilities_of_others(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    stamp[0]["places"] = [{"77": -0.1}] * 3


def _no_time_at_all(told: Json, rows: list[Json], stamp: list[Json]) -> None:
    for row in rows:
        row["steps"] = [[0.0, *step[1:]] for step in row["steps"]]
    told["numbers"][0]["tokens_per_s"] = 1e9


@pytest.mark.parametrize(
    ("change", "is_careful", "sentence"),
    [
        (_edited_row, False, "is not the file that arena.json was written with: its hash differs"),
        (_edited_summary, False, "says numbers.1.tokens_per_s = 146.667, and the rows give 133.333"),
        (_edited_stamp, False, "says stamps.ngram k=2.verdict = 'better than lossless', and the rows give"),
        (_tokens_from_nowhere, True, "line 4: its steps have not as many tokens as its text"),
        (_more_than_a_draft, True, "a step of 1 drafted and 1 accepted tokens cannot give 3"),
        (_back_in_time, True, "line 4: the times of its steps go back"),
        (_overlapping_turns, True, "overlap in time, and contestants take turns"),
        (_overlapping_requests, True, "has 2 requests in flight at batch size 1"),
        (_left_out_question, True, "'ngram k=2' at batch size 1 was not asked the questions"),
        (_other_question, True, "question 1 was another one for 'ngram k=2'"),
        (_called_real, True, "the acceptance of 'ngram k=2' is not real"),
        (_drafter_without_a_hash, True, "drafts with 'another', and no hash of its files is given"),
        (_drafts_of_plain, True, "plain decoding drafted"),
        (_more_tokens_than_asked, True, "6 tokens, and 5 were the most"),
        (_unknown_contestant, True, "there are rows of 'somebody', which arena.json does not list"),
        (_fewer_samples, True, "3 answers of one length are needed"),
        (_without_hashes, False, "is not the file that arena.json was written with: its hash differs"),
        (_hash_of_another_file, False, "is not the file that arena.json was written with: its hash differs"),
        (_without_a_machine, False, "environment.cpu: Field required"),
        (_probabilities_of_others, None, "log probabilities are not those of its tokens"),
        (_no_time_at_all, None, "line 1: its steps took no time"),
    ],
)
def test_a_forged_submission_is_caught(
    change: Change,
    is_careful: bool | None,
    sentence: str,
    by_hand: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    forge(by_hand, lambda *_: None)
    assert run(["arena", "verify", str(by_hand)]) == 0
    capsys.readouterr()
    forge(by_hand, change, is_careful=is_careful)
    assert run(["arena", "verify", str(by_hand)]) == 1
    said = capsys.readouterr().out
    assert said.startswith("does not hold: ")
    assert sentence in said
    assert run(["arena", "submit", str(by_hand), str(tmp_path / "board")]) == 2
    assert "does not hold: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "OUT", "--suite", "mmlu", "--speculative-config", "auto"], "there is no suite 'mmlu'"),
        (
            ["run", "OUT", "--suite", "gsm8k", "--url", "http://127.0.0.1:9"],
            "needs a file with its questions",
        ),
        (["run", "OUT", "--suite", "gsm8k", "--dataset", "Q"], "give --speculative-config or --url"),
        (
            ["run", "OUT", "--suite", "gsm8k", "--dataset", "Q", "--url", "http://127.0.0.1:9"],
            "nobody answers at http://127.0.0.1:9",
        ),
        (
            ["run", "OUT", "--suite", "gsm8k", "--dataset", "Q", "--url", "u", "--batch-size", "65"],
            "--batch-size 65 is not between 1 and 64",
        ),
        (
            ["run", "FULL", "--suite", "gsm8k", "--dataset", "Q", "--url", "u"],
            "is not empty: give a new folder",
        ),
        (["verify", "FULL"], "holds no arena.json: give a folder that specdec arena run wrote"),
        (["page", "FULL", "out.html"], "holds no submissions: add one with specdec arena submit"),
        (["page", "FULL", "nowhere/out.html"], "there is no folder 'nowhere'"),
    ],
)
def test_mistakes_are_one_line(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("FULL").mkdir()
    Path("FULL/file").touch()
    Path("Q").write_text(json.dumps({"question": "1 + 1?"}) + "\n")
    assert run(["arena", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
