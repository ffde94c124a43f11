import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from openai import APIError, OpenAI
from servercheck.served import address

from specdec import LLM, SamplingParams

pytestmark = pytest.mark.slow

SPECDEC = str(Path(sys.executable).with_name("specdec"))
NGRAM = '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1}'
PROMPT = "import os\nimport sys\n\n\ndef read_lines(path):\n"


def test_two_engines_serve_and_one_may_be_killed(llm: LLM, tmp_path: Path) -> None:
    """One start of two engines for everything: each start takes seconds."""
    others = set(psutil.Process().children(recursive=True))  # of servers in this process
    template = tmp_path / "template.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    options = ["--dtype", "float32", "--chat-template", str(template), "--speculative-config", NGRAM]
    command = [
        SPECDEC,
        "serve",
        "zoo",
        "--data-parallel-size",
        "2",
        "--port",
        "0",
        "--api-key",
        "k",
        *options,
    ]
    log = tmp_path / "log"
    with log.open("w") as written, subprocess.Popen(command, stderr=written, text=True) as server:
        try:
            url = address(log, server, "serving 2 engines at ")
            check(url, server, llm)
            with (
                OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client,
                ThreadPoolExecutor(1) as pool,  # what runs when the server is to end has a few seconds
            ):
                last = pool.submit(
                    client.completions.create,
                    model="zoo",
                    prompt=PROMPT,
                    max_tokens=50,
                    extra_body={"ignore_eos": True},
                )
                time.sleep(0.2)
                server.send_signal(signal.SIGINT)
                assert last.result().choices[0].finish_reason == "length"
            assert server.wait(timeout=60) == 0, log.read_text()
        finally:
            server.kill()
    assert "Traceback" not in log.read_text()
    assert "engine 0 was ended by signal 9: it is started again" in log.read_text()
    assert set(psutil.Process().children(recursive=True)) <= others


def told(url: str, body: bytes | None = None) -> dict[str, object]:
    """Return what all engines say together."""
    with urllib.request.urlopen(
        urllib.request.Request(url, body, {"Authorization": "Bearer k"}), timeout=60
    ) as answer:
        found: dict[str, object] = json.load(answer)
    return found


def check(url: str, server: subprocess.Popen[str], llm: LLM) -> None:
    engines = sorted(psutil.Process(server.pid).children(), key=psutil.Process.create_time)
    assert len(engines) == 2
    with OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        assert told(f"{url}/load") == {"server_load": 0}
        assert told(f"{url}/reset_prefix_cache", b"") == {"success": True}
        doomed = events(client, max_output_tokens=900, stream=True, extra_body={"ignore_eos": True})
        assert next(doomed).response.id.startswith("resp_e0_")
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(
                client.completions.create, model="zoo", prompt=PROMPT, max_tokens=200, temperature=0
            )
            engines[0].kill()
            with pytest.raises(APIError) as lost:
                for _ in doomed:
                    pass
            assert lost.value.code == "engine_lost"
            (offline,) = llm.generate([PROMPT], SamplingParams(temperature=0, max_tokens=200))
            assert other.result().choices[0].text == offline.outputs[0].text
        first = client.responses.create(model="zoo", input=PROMPT, max_output_tokens=8)
        assert first.id.startswith("resp_e1_")  # the only one left
        metric(url, 'specdec:engine_up{engine="0"}', 1.0)
        assert metric(url, 'specdec:engine_restarts_total{engine="0"}', 1.0) == 1.0
        # A conversation goes on where it began, though the other engine has had less to do.
        for _ in range(2):
            first = client.responses.create(
                model="zoo", input="def main(", previous_response_id=first.id, max_output_tokens=8
            )
            assert first.id.startswith("resp_e1_")
        assert first.usage is not None
        assert first.usage.input_tokens_details.cached_tokens > 0
        assert metric(url, 'vllm:generation_tokens_total{engine="1",model_name="zoo"}', 224.0) >= 224.0
        new = client.responses.create(model="zoo", input="class A:\n", max_output_tokens=8)
        assert new.id.startswith("resp_e0_")


def events(client: OpenAI, **body: object) -> Iterator:
    return iter(client.responses.create(model="zoo", input="def main(", **body))


def metric(url: str, name: str, least: float) -> float:
    """Return a number of `/metrics` once it is so large."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        found = [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name)]
        if found and found[0] >= least:
            return found[0]
        time.sleep(0.1)
    raise AssertionError(json.dumps(lines))


def test_engines_import_nothing_from_the_current_folder(tmp_path: Path) -> None:
    for name in ("specdec", "torch", "pickle", "uvicorn"):
        (tmp_path / f"{name}.py").write_text(f"print('ran', __file__)\nopen('{name}-ran', 'w').close()\n")
    command = [SPECDEC, "serve", "zoo", "--data-parallel-size", "2", "--port", "0", "--max-num-seqs", "0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert list(tmp_path.glob("*-ran")) == [], done.stdout
    assert done.returncode == 2
    assert done.stderr.count("error: --max-num-seqs 0 must be at least 1") == 1, "once, not from each engine"
