"""`specdec config`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specdec_cli.main import run

PLUGIN = """
from specdec import Draft, Proposer, ProposerConfig, hookimpl

class EchoConfig(ProposerConfig):
    times: int = 1

class Echo(Proposer):
    name = "echo"
    Config = EchoConfig
    def propose(self, batch):
        return Draft.empty(batch.batch_size)

@hookimpl
def specdec_register_proposers():
    return Echo
"""
RIGHT = '{"method": "echo", "num_speculative_tokens": 3, "times": 2}'


@pytest.fixture(autouse=True)
def _echo(site: Any) -> None:
    site.install("echo", {"proposers": {"echo": "echo_plugin"}}, {"echo_plugin": PLUGIN})


def test_the_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert "echo" in {alternative["title"] for alternative in schema["oneOf"]}


def test_a_right_one_is_printed_in_full(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "speculation.yaml"
    file.write_text("method: echo\nnum_speculative_tokens: 3\ntimes: 2\n")
    for given in (RIGHT, str(file)):
        assert run(["config", "validate", given, "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["config"]["num_speculative_tokens"] == 3
        assert report["proposer"] == "echo_plugin.Echo"
        assert report["proposer_config"]["times"] == 2
        assert report["is_lossless"] is True
    assert run(["config", "validate", RIGHT]) == 0
    assert capsys.readouterr().out.startswith("valid\n")


def test_with_a_model_sizes_are_compared(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"vocab_size": 100, "hidden_size": 8, "max_position_embeddings": 64}'
    )
    assert run(["config", "validate", RIGHT, "--model", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["target"]["vocab_size"] == 100
    too_long = RIGHT[:-1] + ', "max_model_len": 65}'
    assert run(["config", "validate", too_long, "--model", str(tmp_path)]) == 2
    assert "'max_model_len' = 65 is above the target's 64" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ('{"method": "echo", "num_speculative_tokens": 3, "tmes": 2}', "unknown key 'tmes': did you mean 'times'?"),
        ('{"method": "echo", "num_speculative_tokens": 3, "times": "x"}', "'times' = 'x': input should be a valid integer"),
        ("/no/such/file.json", "cannot read '/no/such/file.json'"),
    ],
)  # fmt: skip
def test_a_wrong_one_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], given: str, message: str
) -> None:
    assert run(["config", "validate", given]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
