import json
from pathlib import Path
from typing import Any

import pytest
from servercheck.served import Served
from servercheck.stub import Stub, stub_server

from specdec.errors import ConfigError
from specdec_cli.audit import side
from specdec_cli.audit.prompts import read_prompts
from specdec_cli.main import run

QUICK = ["--samples", "64", "--sample-tokens", "3", "--sampled-prompts", "3", "--max-tokens", "12"]


def audited(stub: Stub, *words: str, reference: Stub | None = None) -> tuple[int, dict[str, Any]]:
    """Return the exit status of an audit, and its report."""
    out = Path.cwd() / "report.json"
    with stub_server(stub) as url:
        if reference is None:
            status = run(["audit", url, *QUICK, "--json", str(out), *words])
        else:
            with stub_server(reference) as other:
                status = run(["audit", url, other, *QUICK, "--json", str(out), *words])
    return status, json.loads(out.read_text()) if out.exists() else {}


@pytest.fixture(autouse=True)
def in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def counters_are_right_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in's are; of our server the engine may still be at work on the last answer."""
    monkeypatch.setattr(side, "SETTLE_S", 0.0)


def kinds(report: dict[str, Any], name: str) -> dict[str, int]:
    found: dict[str, int] = report["divergence_kinds"][name]
    return found


@pytest.mark.parametrize(
    "stub",
    [
        Stub(),
        Stub(most_samples=1, has_ids=False),
        Stub(has_ids=False, is_chat_form=True),
        Stub(refuses=("return_token_ids",)),
    ],
    ids=["ids", "tokens, one sample a request", "tokens in the form of chats", "no ids"],
)
def test_a_good_server_passes(stub: Stub, capsys: pytest.CaptureFixture[str]) -> None:
    status, report = audited(stub)
    assert (status, report["verdict"]) == (0, "lossless")
    assert all(count == 0 for found in report["divergence_kinds"].values() for count in found.values())
    assert report["sampled"]["positions"][1]["num_freedom"] > 10
    assert report["with_drafts"]["drafting_sampled"]["num_draft_tokens"] == 3 * 64 * 3
    assert report["without"]["drafting_sampled"]["num_draft_tokens"] == 0
    said = capsys.readouterr().out
    assert said.startswith("lossless: At temperature 0 the answers to 16 prompts (192 tokens) are the same")
    assert "would have been found with probability 0.95" in said


def test_a_second_server_may_be_the_one_without() -> None:
    plain = Stub(has_switch=False, is_speculative=False)
    status, report = audited(Stub(has_switch=False), reference=plain)
    assert status == 0
    assert report["without"]["url"] != report["with_drafts"]["url"]


def test_a_changed_token_is_found_and_its_gap_told(capsys: pytest.CaptureFixture[str]) -> None:
    status, report = audited(Stub(takes_second_best=True))
    assert (status, report["verdict"]) == (1, "not_lossless")
    assert kinds(report, "with and without, alone")["wrong token"] >= 8
    alone = next(c for c in report["greedy"]["comparisons"] if c["name"] == "with and without, alone")
    assert {found["place"] for found in alone["divergences"]} == {5}
    assert max(found["gap"] for found in alone["divergences"]) > 0.1
    assert "NOT LOSSLESS: At temperature 0 speculation changes" in capsys.readouterr().out


def test_rounding_at_a_tie_is_no_fault() -> None:
    status, report = audited(Stub(rounding=1e-3))
    assert status == 0, report["summary"]
    found = kinds(report, "with and without, alone")
    assert found["near-tie"] > 0
    assert found["wrong token"] == 0
    assert "near-tie" in report["summary"][0]


@pytest.mark.slow
def test_a_token_that_changes_among_others_only_is_a_fault() -> None:
    status, report = audited(Stub(takes_second_best_in_batch=True), "--temperature", "0")
    assert status == 1
    assert "among other requests" in report["summary"][0]
    assert kinds(report, "with and without, alone")["wrong token"] == 0


@pytest.mark.slow
def test_a_server_that_changes_without_speculation_cannot_be_judged_in_batches() -> None:
    stub = Stub(takes_second_best_in_batch=True, plain_takes_second_best_in_batch=True, is_speculative=True)
    status, report = audited(stub, "--temperature", "0")
    assert status in (0, 2)  # both sides change alike, where requests overlap alike
    assert kinds(report, "without, alone and among others")["wrong token"] > 0
    assert kinds(report, "with and without, alone")["wrong token"] == 0


def test_a_shifted_distribution_is_found() -> None:
    status, report = audited(Stub(temperature_factor=3.0))
    assert (status, report["verdict"]) == (1, "not_lossless")
    assert report["p_value"] < 1e-6
    assert report["summary"][0].startswith("At temperature 0.8 speculation changes the distribution")
    assert kinds(report, "with and without, alone")["wrong token"] == 0


@pytest.mark.parametrize(
    ("stub", "sentence"),
    [
        (Stub(is_speculative=False), "drafted nothing: serve it with speculation"),
        (Stub(has_switch=False), "where it should not: give the address of a server without speculation"),
        (Stub(has_metrics=False), "does not tell whether it drafts"),
    ],
)
def test_what_cannot_be_told_is_said(stub: Stub, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, report = audited(stub)
    assert (status, report["verdict"]) == (2, "could_not_tell")
    assert sentence in report["summary"][0]
    assert capsys.readouterr().out.startswith("could not tell: ")


def test_a_server_without_counters_can_be_trusted_to_draft() -> None:
    status, report = audited(Stub(has_metrics=False), "--assume-drafts", "--temperature", "0")
    assert (status, report["sampled"]) == (0, None)


def test_divergences_without_logprobs_are_not_judged() -> None:
    stub = Stub(has_logprobs=False, takes_second_best=True)
    status, report = audited(stub, "--temperature", "0")
    assert status == 2
    assert "cannot be told from near-ties" in report["summary"][0]


def test_samples_without_tokens_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    status, _ = audited(Stub(has_logprobs=False, has_ids=False))
    assert status == 2
    assert "returns neither token ids nor log probabilities" in one_line(capsys)


def test_a_server_that_dies_half_way(capsys: pytest.CaptureFixture[str]) -> None:
    status, _ = audited(Stub(dies_after=40))
    assert status == 2
    assert "stopped answering after" in one_line(capsys)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["localhost:8000"], "is not the address of a server: give one such as http://127.0.0.1:8000"),
        (["http://127.0.0.1:9"], "nobody answers at http://127.0.0.1:9"),
        (["http://127.0.0.1:9", "--off", "[1]"], "--off: give an object"),
        (["http://127.0.0.1:9", "--off", "{"], "--off '{' is not JSON"),
        (["http://127.0.0.1:9", "--samples", "0"], "--samples 0 is below 1"),
        (["http://127.0.0.1:9", "--false-alarm-rate", "1"], "is not between 0 and 1"),
        (["http://127.0.0.1:9", "--prompts", "none.jsonl"], "none.jsonl"),
    ],
)
def test_mistakes_are_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", *words]) == 2
    assert message in one_line(capsys)


def test_prompts_are_what_completions_take(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "one"}\n{"prompt_token_ids": [1, 2]}\n')
    assert read_prompts(file) == ["one", [1, 2]]
    file.write_text('{"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]}\n')
    with pytest.raises(ConfigError, match=r"line 1: an audit asks for completions: give 'prompt'"):
        read_prompts(file)


def test_refusals_name_the_server_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    with stub_server(Stub(refuses=("speculative",))) as url:
        assert run(["audit", url, "--model", "other"]) == 2
        assert "there is no model 'other'" in one_line(capsys)
        assert run(["audit", f"{url}/nothing/here"]) == 2
        assert "answers 404: not found" in one_line(capsys)
        assert run(["audit", f"{url}/v1/"]) == 2
        assert "unknown field speculative; asked without speculation" in one_line(capsys)


def test_our_server_passes_and_the_page_is_whole(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = ("def read_lines(path):\n    return read_lines(", "import os\nimport sys\nimport os\nimport ")
    Path("prompts.jsonl").write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    words = ["--prompts", "prompts.jsonl", "--samples", "16", "--sample-tokens", "4", "--max-tokens", "12"]
    status = run(["audit", served.url, *words, "--html", "page.html", "--api-key", "<secret>"])
    said = capsys.readouterr().out
    assert (status, said.partition(":")[0]) == (0, "lossless"), said
    page = Path("page.html").read_text()
    assert "specdec audit: lossless" in page
    assert "with and without, alone" in page
    assert "secret" not in page


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith("specdec: error: ")
    return line
