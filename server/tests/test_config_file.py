"""`specdec serve --config FILE`: what a file gives, what wins over it, and what is said of a wrong one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from specdec_cli.main import run
from specdec_server.http import Http

ALL = """
# everything that a command line can say
model: zoo
port: 8123
host: 0.0.0.0
served-model-name: [code, more]
api_key: k
speculative-config:
  method: ngram
  num_speculative_tokens: 3
dtype: float32
max-num-seqs: 4
enforce-eager: true
disable-access-log: true
disable-page: false
allowed-origins: ["*"]
allowed-hosts: '["llm.example"]'
header-timeout: 2.5
root-path:
"""


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Http, dict[str, Any]]]:
    found: list[tuple[Any, Http, dict[str, Any]]] = []
    monkeypatch.setattr(
        "specdec_server.launch.launch", lambda words, http, **options: found.append((words, http, options))
    )
    monkeypatch.delenv("SPECDEC_API_KEY", raising=False)
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "serve.yaml"
    path.write_text(ALL)
    return path


def test_a_file_gives_options_of_the_server_and_of_the_engine(launched: list[Any], file: Path) -> None:
    assert run(["serve", "--config", str(file)]) == 0
    ((words, http, options),) = launched
    assert words == []
    assert (http.host, http.port, http.root_path) == ("0.0.0.0", 8123, "")
    settings = options["settings"]
    assert settings["model_names"] == ("code", "more")
    assert settings["api_key"] == ("k",)
    assert settings["is_page_served"] is True
    assert settings["is_access_logged"] is False
    assert json.loads(settings["allowed_origins"]) == ["*"]
    assert settings["allowed_hosts"] == '["llm.example"]'
    assert settings["header_timeout_s"] == 2.5
    assert options["file"].arguments == {
        "model": "zoo",
        "speculative_config": {"method": "ngram", "num_speculative_tokens": 3},
        "dtype": "float32",
        "max_num_seqs": 4,
        "enforce_eager": True,
    }


def test_the_command_line_and_the_environment_win(
    launched: list[Any], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDEC_API_KEY", "from-environment")
    words = [
        "--port",
        "8000",
        "--served-model-name",
        "mine",
        "--allowed-origins",
        "[]",
        "--max-num-seqs",
        "2",
    ]
    assert run(["serve", "smollm2", *words, "--config", str(file)]) == 0
    ((rest, http, options),) = launched
    assert http.port == 8000, "also where it gives what is the default"
    assert options["settings"]["model_names"] == ("mine",)
    assert options["settings"]["api_key"] == ("from-environment",)
    assert options["settings"]["allowed_origins"] == "[]"
    assert rest == ["smollm2", "--max-num-seqs", "2"]
    monkeypatch.undo()

    made: list[Any] = []

    def make(target: str, **arguments: Any) -> None:
        made.append((target, arguments))
        raise SystemExit(3)

    monkeypatch.setattr("specdec_server.launch.AsyncLLM", make)
    with pytest.raises(SystemExit):
        run(
            [
                "serve",
                "smollm2",
                "--port",
                "0",
                "--speculative-config.method",
                "suffix",
                *words[4:],
                "--config",
                str(file),
            ]
        )
    ((target, arguments),) = made
    assert target == "smollm2"
    assert arguments == {
        "dtype": "float32",
        "enforce_eager": True,
        "max_num_seqs": 2,
        "speculative_config": {"method": "suffix"},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prt: 8000", "FILE: unknown option 'prt': did you mean 'port'?"),
        ("max-num-seq: 4", "FILE: unknown option 'max_num_seq': did you mean 'max_num_seqs'?"),
        ("xyzzy: 1", "FILE: unknown option 'xyzzy': specdec serve --help lists the server's own"),
        ("yes: 1", "FILE: unknown option 'yes'"),
        ("port: x", "Invalid value for '--port'"),
        ("port: 70000", "Invalid value for '--port'"),
        ("port: 1\n--port: 2", "FILE: 'port' is given twice"),
        ("disable-page: 3", "FILE: disable_page = 3 must be true or false"),
        ("config: other.yaml", "FILE: 'config' cannot be in the file itself"),
        ("- port: 1", "FILE must hold options, one a line, such as 'port: 8000'"),
        ("port 8000", "FILE must hold options"),
        ("port: [", "FILE is not YAML: while parsing"),
        ("a: &a [*a]", "FILE is not YAML: found unconstructable recursive node"),
        ("tool-parser-plugin: x", "FILE: 'tool_parser_plugin' = 'x' is not supported: "),
        ("speculative-config: {method: ngrm}", "did you mean 'ngram'?"),
        ("model: no/such/folder/here", "no/such/folder/here"),
        ("max-model-len: long", "max_model_len='long' must be an integer"),
    ],
)
def test_a_wrong_file_is_told_in_a_line(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text(text)
    port = [] if "port:" in text else ["--port", "0"]
    assert run(["serve", "--config", str(path), *port]) == 2
    assert message.replace("FILE", str(path)) in capsys.readouterr().err.splitlines()[-1]


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--config", "nowhere.yaml"]) == 2
    assert "--config: cannot read 'nowhere.yaml': No such file" in capsys.readouterr().err


def test_a_configuration_is_given_as_a_whole_or_in_parts(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--speculative-config",
        '{"method": "ngram"}',
        "--speculative-config.num_speculative_tokens",
        "3",
    ]
    assert run(["serve", "zoo", "--port", "0", *words]) == 2
    assert "--speculative-config is given twice" in capsys.readouterr().err


@pytest.mark.slow
def test_a_server_runs_from_a_file_and_says_what_it_serves_in_one_line(file: Path) -> None:
    command = [str(Path(sys.executable).with_name("specdec")), "serve", "--config", str(file), "--port", "0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stderr is not None
        try:
            line = next(line for line in server.stderr if "serving" in line)
            url = re.findall(r"http://\S+", line)[-1].replace("0.0.0.0", "127.0.0.1")
            request = urllib.request.Request(f"{url}/v1/models", headers={"Authorization": "Bearer k"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                names = [model["id"] for model in json.load(answer)["data"]]
            with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
                metrics = answer.read().decode()
            server.send_signal(signal.SIGINT)
            rest = server.stderr.read()
            assert server.wait(timeout=30) == 0, rest
        finally:
            server.kill()
    assert names == ["code", "more"]
    size, slots = (
        int(float(re.findall(rf"^specdec:kv_cache_{unit}{{.*}} (\S+)$", metrics, re.M)[0]))
        for unit in ("bytes", "tokens")
    )
    assert (
        f"specdec: serving code, more, float32 on cpu, drafts by ngram of up to 3 tokens, KV cache of {size:,} bytes for "
        f"{slots:,} tokens, up to 4 sequences of 1,024 tokens, 1 thread, at http://0.0.0.0:" in line
    )
    assert [text for text in rest.splitlines() if "uvicorn" in text] == []
