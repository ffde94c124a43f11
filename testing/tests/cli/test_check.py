"""`specdec check`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from specdec_cli.main import run

PLUGIN = """
from specdec import Capability, Draft, Proposer

class Right(Proposer):
    name = "right"
    def propose(self, batch):
        return Draft.from_lists([[int(batch.token_ids(i)[-1])] * cap for i, cap in enumerate(batch.max_nodes)])

class Wrong(Right):
    name = "wrong"
    def propose(self, batch):
        return Draft.from_lists([[0] * (cap + 1) for cap in batch.max_nodes])

def helper(batch):
    return batch.nothing_like_it

class Raising(Right):
    name = "raising"
    def propose(self, batch):
        print("rows:", len(batch.request_ids))
        helper(batch)
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "plugin.py"
    file.write_text(PLUGIN)
    return file


def report_of(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


@pytest.mark.usefixtures("plugin")
def test_kept_promises_are_exit_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    config = '{"num_speculative_tokens": 3}'
    assert run(["check", "./plugin.py:Right", "--model", "tiny", "--config", config]) == 0
    first, heading, *lines, counts = capsys.readouterr().out.splitlines()
    assert first == "method ./plugin.py:Right on tiny"
    assert heading.split() == ["VERDICT", "PROMISE"]
    assert len(lines) > 25
    assert all(line.startswith(("kept ", "not applicable ")) for line in lines)
    assert counts == f"{sum(line.startswith('kept') for line in lines)} kept, 6 not applicable"
    [trees] = [line for line in lines if "`parents`" in line]
    assert trees.endswith("| TREE is not declared, and no draft has parents")
    assert "microseconds per draft at batch 1: " in lines[-1]


@pytest.mark.usefixtures("plugin")
def test_broken_promises_are_exit_code_1_with_reason_and_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "./plugin.py:Wrong", "--model", "tiny", "--json"]) == 1
    report = report_of(capsys)
    assert (report["name"], report["kind"], report["model"]) == ("./plugin.py:Wrong", "method", "tiny")
    assert report["config"] == {"num_speculative_tokens": 4}
    assert not report["is_conforming"]
    promises = {promise["name"]: promise for promise in report["promises"]}
    broken = promises["test_no_draft_where_none_is_wanted"]
    assert broken["verdict"] == "broken"
    assert broken["promise"].startswith("A row whose `max_nodes` is 0 gets no node")
    assert broken["reason"] == "max_nodes is 0 and [0] was drafted"
    assert broken["fix"].startswith("leave rows with `batch.max_nodes[row] == 0` empty")
    assert promises["test_ids_are_in_the_vocabulary"]["verdict"] == "kept"
    assert "the engine raised DraftError" in promises["test_greedy_text_is_that_of_plain_decoding"]["reason"]


@pytest.mark.usefixtures("plugin")
def test_what_a_plugin_prints_and_where_it_raises_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "./plugin.py:Raising", "--model", "tiny"]) == 1
    shown = capsys.readouterr().out
    place = f"plugin.py:{PLUGIN.splitlines().index('    return batch.nothing_like_it') + 1}"
    raised = f"AttributeError: 'ProposeBatch' object has no attribute 'nothing_like_it' [{place}]"
    assert f"| propose raised {raised} | To fix: what {place} raises; " in shown
    assert f"| the engine raised {raised} | To fix: what {place} raises; " in shown
    assert "copy what you change" not in shown, "advice for a promise that could not be judged"
    printed = shown.partition("\nprinted by the plugin:\n")[2].splitlines()
    assert any(re.fullmatch(r"  rows: 1  \(\d+ times\)", line) for line in printed), printed


@pytest.mark.slow
def test_the_target_without_the_zoo_is_tiny() -> None:
    code = (
        "import sys; sys.modules['specdec_zoo'] = None; from specdec_testing import ProposerConformance as P; "
        "from specdec_testing import ScorerConformance as S; print(P.model, S.model)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "tiny tiny\n"


def test_samplers_and_scorers_are_checked_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    rates = '{"synthetic_acceptance_rates": [0.8, 0.5]}'
    assert run(["check", "synthetic", "--config", rates, "--json"]) == 0
    report = report_of(capsys)
    assert (report["kind"], report["model"]) == ("sampler", None)
    assert run(["check", "transformers", "--model", "tiny"]) == 0
    assert capsys.readouterr().out.startswith("scorer transformers on tiny\n")


@pytest.mark.slow
def test_engines_are_checked_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "--host", "transformers", "--json"]) == 0
    report = report_of(capsys)
    assert (report["name"], report["kind"], report["model"]) == ("transformers", "host", "zoo")
    assert {promise["verdict"] for promise in report["promises"]} == {"kept"}


BACKEND = """
from specdec.interfaces import Backend, Declined

class Unfinished(Backend):
    name = "unfinished"
    api_version = 1
    def linear(self, module):
        return Declined("Not yet.")
    def verifier(self, sampler, device):
        return 1 / 0
"""


def test_backends_are_checked_and_their_questions_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "unfinished.py").write_text(BACKEND)
    assert run(["check", "./unfinished.py:Unfinished", "--model", "tiny", "--json"]) == 1
    report = report_of(capsys)
    assert report["kind"] == "backend"
    reasons = {promise["name"]: promise["reason"] for promise in report["promises"]}
    raised = "raised ZeroDivisionError: division by zero [unfinished.py:10]"
    assert reasons["test_every_question_is_answered"] == f"verifier(strict) {raised}"
    assert reasons["test_verdicts_are_those_of_core"] == f"verifier('strict') {raised}"
    assert reasons["test_passes_agree"] == "declined: it has no form of models"
    assert reasons["test_the_text_is_that_of_core_alone"] == "", "core contains it"


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing-like-it"], "there is no method 'nothing-like-it'"),
        (["./absent.py:Mine"], "'./absent.py:Mine': there is no file"),
        (
            ["./plugin.py:Capability"],
            "'./plugin.py:Capability' is no Proposer, Sampler, Scorer or Backend",
        ),
        (["./plugin.py:Right", "--config", "{"], "--config: not JSON"),
        (["./plugin.py:Right", "--config", "[1]"], "--config: give an object of keys and values, not [1]"),
        (
            ["./plugin.py:Right", "--model", "tiny", "--config", '{"colour": 1}'],
            "speculative_config: unknown key 'colour'",
        ),
        (["./plugin.py:Right", "--model", "./nowhere"], "there is no directory './nowhere'"),
        (["synthetic"], "--config: the sampler 'synthetic' needs one of 'synthetic_acceptance_rate'"),
        (["transformers", "--config", '{"a": 1}'], "--config: a scorer has no configuration; leave out a"),
        (["layers", "--config", '{"a": 1}'], "--config: a backend has no configuration; leave out a"),
        ([], "specdec check: give METHOD or --host, one of them"),
        (["ngram", "--host", "transformers"], "specdec check: give METHOD or --host, one of them"),
        (
            ["--host", "transformers", "--config", '{"a": 1}'],
            "--config: a host has no configuration; leave out a",
        ),
        (["--host", "mlx"], "--host: no adapter for 'mlx' is installed, only for "),
    ],
)
def test_what_the_user_can_mend(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run(["check", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"specdec: error: {message}")
    assert captured.err.count("\n") == 1


def test_without_pytest_there_is_a_line_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pytest", None)
    assert run(["check", "strict"]) == 2
    assert capsys.readouterr().err == (
        'specdec: error: specdec check needs pytest: pip install "specdec-testing"\n'
    )


def test_a_name_that_is_not_installed_is_told_before_anything_is_imported() -> None:
    code = (
        "import sys; from specdec_cli.main import run; code = run(['check', 'ngrma']); "
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no method 'ngrma'" in done.stderr


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["eagle", "--model", "tiny"], "method 'eagle' needs a draft checkpoint as 'model'"),
        (["mlp_speculator"], "method 'mlp_speculator' needs a draft checkpoint as 'model'"),
        (["dflash"], "method 'dflash' needs a draft checkpoint as 'model'"),
        (["draft_model", "--model", "smollm2"], "method 'draft_model' needs a draft checkpoint as 'model'"),
        (["composite"], "'proposers' needs a list with a speculative_config for each proposer"),
        (["./needy.py:Needy"], "'depth' is missing"),
        (["./needy.py:Needy", "--config", '{"depth": 0}'], "'depth'"),
    ],
)
def test_keys_are_checked_before_anything_is_loaded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    loaded: list[object] = []
    monkeypatch.setattr("specdec_testing.checks.check_target", loaded.append)
    Path("needy.py").write_text(NEEDY)
    assert run(["check", *arguments]) == 2
    told = capsys.readouterr().err
    assert message in told
    assert """specdec check takes keys as --config '{"KEY": VALUE}'""" in told
    assert told.count("\n") == 1
    assert loaded == []


NEEDY = """
from pydantic import Field
from specdec import Draft, Proposer, ProposerConfig

class Config(ProposerConfig):
    depth: int = Field(ge=1)

class Needy(Proposer):
    name = "needy"
    Config = Config
    def propose(self, batch):
        return Draft.from_lists([[] for _ in batch.max_nodes])
"""
