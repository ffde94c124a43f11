import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from openai import OpenAI

from specdec_cli.main import run

pytestmark = pytest.mark.slow

SPECDEC = str(Path(sys.executable).with_name("specdec"))


def test_a_server_runs_from_the_command_line_until_a_signal(tmp_path: Path) -> None:
    template = tmp_path / "template.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    command = [
        SPECDEC, "serve", "zoo", "--speculative_config", '{"method": "ngram", "num_speculative_tokens": 3}', "--port", "0",
        "--served-model-name", "code", "more", "--dtype", "float32", "--max_num_seqs", "4", "--chat-template", str(template),
    ]  # fmt: skip
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=os.environ | {"SPECDEC_API_KEY": "k"}
    ) as server:
        assert server.stderr is not None
        try:
            url = None
            for line in server.stderr:
                if found := re.search(r"http://[\d.]+:\d+", line):
                    url = found.group()
                    break
            assert url is not None, "it ended before it listened"
            with OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
                text = (
                    client.completions.create(model="code", prompt="def main(", max_tokens=8, temperature=0)
                    .choices[0]
                    .text
                )
                message = client.chat.completions.create(
                    model="code",
                    messages=[{"role": "user", "content": "def main("}],
                    max_tokens=8,
                    temperature=0,
                )
                assert message.choices[0].message.content == text
            server.send_signal(signal.SIGINT)
            rest = server.stderr.read()
            assert server.wait(timeout=30) == 0, rest
        finally:
            server.kill()
    assert "Traceback" not in rest


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["zoo", "--model", "zoo"], "one model"),
        (["no/such/folder/here"], "no/such/folder/here"),
        (["--log-level", "loud"], "--log-level"),
        (["--chat-template", "nowhere.jinja"], "nowhere.jinja"),
        (["--speculative-config", '{"method": "ngrm"}'], "ngram"),
        (["--api-key", ""], "empty"),
        (["--allowed-origins", "*"], "--allowed-origins"),
        (["--ssl-certfile", "nowhere.pem"], "cannot use 'nowhere.pem' (No such file or directory)"),
        (["--ssl-certfile", __file__], "give a certificate and its key as PEM files"),
        (["--ssl-keyfile", "key.pem"], "--ssl-keyfile 'key.pem' needs --ssl-certfile"),
        (["--otlp-traces-endpoint", "http://127.0.0.1:1"], "pip install opentelemetry-sdk"),
    ],
)
def test_mistakes_are_one_line_before_anything_is_loaded(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object) -> None:
        raise AssertionError("the model is loaded")

    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    if not words[0].startswith("no/") and words[0] != "--speculative-config":  # what only loading tells
        monkeypatch.setattr("specdec_server.launch._engine", load)
    assert run(["serve", "--port", "0", *words]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--max-num-seqs", "0"], "error: --max-num-seqs 0 must be at least 1"),
        (["--device", "cuda:99"], "error: --device cuda:99 cannot be used here"),
    ],
)
def test_mistakes_of_the_engine_are_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "--port", "0", *words]) == 2
    said = capsys.readouterr().err
    assert message in said.splitlines()[-1]
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["no/such/model", "--max-num-seq", "4"],
            "unknown option --max-num-seq: did you mean --max-num-seqs?",
        ),
        (["no/such/model", "--calculate_kv_scales"], "--calculate_kv_scales is not supported"),
        (["no/such/model", "--api-server-count", "2"], "--api-server-count 2 is not supported"),
        (["no/such/model", "-dp", "2", "--prt", "4"], "unknown option --prt: did you mean --port?"),
    ],
)
def test_wrong_options_are_told_before_a_port_or_a_model_is_looked_at(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert run(["serve", "--port", str(taken.getsockname()[1]), *words]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_an_address_in_use_is_told_before_the_model_is_loaded() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [SPECDEC, "serve", "--port", str(port)], capture_output=True, text=True, timeout=120
        )
    assert done.returncode == 2
    assert f"cannot listen at 127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr
    assert "choose another --port" in done.stderr


def test_help_names_the_options() -> None:
    done = subprocess.run([SPECDEC, "serve", "--help"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    for option in ("--speculative-config", "--api-key", "--served-model-name", "MODEL"):
        assert option in done.stdout


@pytest.mark.parametrize(("when", "seconds"), [("loading", 0.1), ("serving", 0.2), ("streaming", 0.0)])
def test_ctrl_c_twice_ends_it_without_a_traceback(when: str, seconds: float) -> None:
    command = [SPECDEC, "serve", "--port", "0", "--dtype", "float32"]
    others = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            sign = r"loading" if when == "loading" else r"(http://[\d.]+:\d+)"
            found = next(found for line in server.stderr if (found := re.search(sign, line)))
            time.sleep(0.3)
            if when == "streaming":
                body = {"prompt": "x", "max_tokens": 900, "ignore_eos": True, "n": 64, "stream": True}
                asked = urllib.request.Request(
                    f"{found[1]}/v1/completions",
                    json.dumps(body).encode(),
                    {"Content-Type": "application/json"},
                )
                urllib.request.urlopen(asked).readline()
            computed = psutil.Process(server.pid).cpu_times().user
            for _ in range(2):
                server.send_signal(signal.SIGINT)
                time.sleep(seconds)
            rest = server.stderr.read()
            assert server.wait(timeout=30) in (0, -signal.SIGINT), rest
            # It does not wait for requests to finish, which would compute for a minute.
            assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - others - computed < 4
        finally:
            server.kill()
    assert "Traceback" not in rest
    assert "terminate called" not in rest


def test_requests_that_run_when_it_is_to_end_are_told() -> None:
    with subprocess.Popen(
        [SPECDEC, "serve", "--port", "0", "--dtype", "float32"], stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        try:
            url = next(
                found.group() for line in server.stderr if (found := re.search(r"http://[\d.]+:\d+", line))
            )
            body = {"prompt": "def main(", "max_tokens": 1000, "ignore_eos": True, "n": 24}
            with ThreadPoolExecutor(2) as pool:
                asked = [pool.submit(ask, url, body | {"stream": stream}) for stream in (True, False)]
                time.sleep(2)
                server.send_signal(signal.SIGTERM)
                stream, whole = (answer.result() for answer in asked)
            log = server.stderr.read()
            server.wait(timeout=30)
        finally:
            server.kill()
    *_, last, done = stream[1].split("\n\n")[:-1]
    assert "shut down" in json.loads(last.removeprefix("data: "))["error"]["message"]
    assert done == "data: [DONE]"
    assert whole[0] == 503
    assert "shut down" in whole[1]
    assert "Traceback" not in log


def ask(url: str, body: dict) -> tuple[int, str]:
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
