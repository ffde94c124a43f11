import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from specdec import ConfigError
from specdec_server.data_parallel.conversation import conversation_of, response_prefix
from specdec_server.data_parallel.engine import EngineEndedError, EngineProcess, environment_of
from specdec_server.data_parallel.engines import MOST_AHEAD, Engines
from specdec_server.data_parallel.metrics import merged_metrics
from specdec_server.data_parallel.rank import DataParallelRank
from specdec_server.data_parallel.refusals import Refusals
from specdec_server.data_parallel.relay import Relay

STUB = Path(__file__).parent / "support" / "servercheck" / "stub_engine.py"
SYSTEM, USER = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}
REPLY, MORE = {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "Bye"}


def engine_of(index: int, folder: Path, command: list[str] | None = None) -> EngineProcess:
    path = folder / f"{index}.sock"
    return EngineProcess(
        index, command or [sys.executable, str(STUB)], f"{path}\n".encode(), path, os.environ
    )


def conversation(path: str, **body: object) -> Any:
    return conversation_of(path, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("path", "first", "second"),
    [
        ("/v1/chat/completions", {"messages": [SYSTEM, USER]}, {"messages": [SYSTEM, USER, REPLY, MORE]}),
        ("/v1/completions", {"prompt": "a" * 600}, {"prompt": "a" * 600 + "b"}),
        ("/v1/completions", {"prompt": [5] * 200}, {"prompt": [5] * 300}),
        ("/v1/responses", {"input": [USER]}, {"input": [USER, REPLY, MORE]}),
        ("/v1/chat/completions", {"messages": [USER], "prompt_cache_key": "k"}, {"messages": [MORE], "prompt_cache_key": "k"}),
    ],
)  # fmt: skip
def test_a_conversation_keeps_its_key_while_it_grows(path: str, first: dict, second: dict) -> None:
    key = conversation(path, **first).key
    assert key is not None
    assert conversation(path, **second).key == key
    assert conversation("/v1/chat/completions", messages=[SYSTEM, MORE]).key != key


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[1]", b"{}", b'{"prompt": ["a", "b"]}', b'{"input": null}',
     b"[" * 200_000, b'{"previous_response_id": "resp_e' + b"9" * 5000 + b'_"}'],
    ids=lambda body: str(body[:24]),
)  # fmt: skip
def test_what_cannot_be_read_belongs_to_no_conversation(body: bytes) -> None:
    found = conversation_of("/v1/completions", body)
    assert (found.key, found.engine) == (None, None)


def test_responses_name_their_engine() -> None:
    response = f"{response_prefix(3)}abc"
    assert conversation("/v1/responses", input="x", previous_response_id=response).engine == 3
    assert conversation_of(f"/v1/responses/{response}", b"").engine == 3
    assert conversation_of(f"/v1/responses/{response_prefix(None)}abc", b"").engine is None


def test_requests_go_to_their_conversation_then_to_who_has_least_to_do(tmp_path: Path) -> None:
    engines = Engines([engine_of(index, tmp_path) for index in range(3)])
    nobody = conversation("/x")
    assert engines.choose(nobody) is None
    first, second, _ = engines.all
    for engine in engines.all:
        engine.is_ready = True
    first.num_running = 1
    talk = conversation("/v1/chat/completions", messages=[USER])
    assert engines.choose(talk) is second
    second.num_running = MOST_AHEAD - 1
    assert engines.choose(talk) is second
    second.num_running = MOST_AHEAD
    moved = engines.choose(talk)
    assert moved is not second
    second.num_running = 0
    assert engines.choose(talk) is moved  # where its newest text is
    kept = conversation("/v1/responses", previous_response_id="resp_e1_a")
    second.num_running = 100
    assert engines.choose(kept) is second
    second.is_ready = False
    assert engines.choose(kept) is not second
    assert engines.choose(conversation("/v1/responses", previous_response_id="resp_e9_a")) is not None


def test_cores_are_divided_unless_the_user_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert environment_of(3)["OMP_NUM_THREADS"] == "2"
    assert environment_of(9)["OMP_NUM_THREADS"] == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert environment_of(3)["OMP_NUM_THREADS"] == "5"


def test_each_engine_takes_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    DataParallelRank(1, 2).take_devices(1)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "5"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    DataParallelRank(1, 2).take_devices(1)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
    with pytest.raises(
        ConfigError, match="--data-parallel-size 3 needs 1 GPU for each engine, and 2 are visible"
    ):
        DataParallelRank(0, 3).take_devices(1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    DataParallelRank(1, 2).take_devices(2)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "6,7"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    DataParallelRank(5, 6).take_devices(1)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"


def test_metrics_of_all_stand_under_one_heading(tmp_path: Path) -> None:
    page = (
        "# HELP vllm:tokens_total tokens\n# TYPE vllm:tokens_total counter\n"
        'vllm:tokens_total{{engine="{0}"}} {1}.0\n'
        "# HELP vllm:wait seconds\n# TYPE vllm:wait histogram\n"
        'vllm:wait_bucket{{engine="{0}",le="+Inf"}} 1.0\n'
        'vllm:wait_count{{engine="{0}"}} 1.0\nvllm:wait_sum{{engine="{0}"}} 0.5\n'
    )
    engines = Engines([engine_of(index, tmp_path) for index in range(2)])
    engines.all[1].is_ready, engines.num_restarts[1] = True, 2
    text = merged_metrics(engines, [page.format(0, 5), page.format(1, 7)]).decode()
    assert text.count("# TYPE vllm:tokens_total counter") == text.count("# TYPE vllm:wait histogram") == 1
    for line in (
        'vllm:tokens_total{engine="0"} 5.0',
        'vllm:tokens_total{engine="1"} 7.0',
        'vllm:wait_bucket{engine="1",le="+Inf"} 1.0',
        'specdec:engine_up{engine="0"} 0.0',
        'specdec:engine_up{engine="1"} 1.0',
        'specdec:engine_restarts_total{engine="1"} 2.0',
    ):
        assert line in text.splitlines()


@asynccontextmanager
async def running(folder: Path, num_engines: int = 1) -> AsyncIterator[Engines]:
    engines = Engines([engine_of(index, folder) for index in range(num_engines)])
    try:
        await engines.start()
        yield engines
    finally:
        await engines.stop()


async def ask(relay: ASGIApp, path: str, leaves_after: int | None = None) -> tuple[int, dict[str, str], str]:
    """Return what the front answers; the client leaves after so many pieces of the body."""
    sent: list[dict] = []
    left = asyncio.Event()
    given = [{"type": "http.request", "body": b"{}"}]

    async def receive() -> dict:
        if given:
            return given.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict) -> None:
        sent.append(message)
        if len(sent) - 1 == leaves_after:
            left.set()

    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "scheme": "http",
             "headers": [(b"connection", b"close"), (b"x-forwarded-for", b"spoofed"), (b"x-own", b"kept")],
             "query_string": b"", "client": ("10.0.0.9", 1)}  # fmt: skip
    await relay(scope, receive, send)
    headers = {key.decode(): value.decode() for key, value in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(message["body"] for message in sent[1:]).decode()


async def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def test_an_engine_that_goes_is_told_and_started_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with running(tmp_path) as engines:
            relay = Relay(engines)
            status, _, head = await ask(relay, "/any")
            assert status == 200
            assert "x-forwarded-for: 10.0.0.9|" in head
            assert "spoofed" not in head
            assert "x-own: kept|" in head

            status, headers, body = await ask(relay, "/die/whole")
            assert (status, headers["retry-after"]) == (503, "1")
            assert json.loads(body)["error"]["code"] == "engine_lost"
            await until(lambda: engines.num_restarts == [1] and bool(engines.ready))

            status, _, body = await ask(relay, "/die/events")
            assert status == 200
            first, error, done, rest = body.split("\n\n")
            assert (first, done, rest) == ('data: {"n": 1}', "data: [DONE]", "")  # half an event is left out
            assert json.loads(error.removeprefix("data: "))["error"]["code"] == "engine_lost"
            await until(lambda: not engines.ready)
            status, headers, body = await ask(relay, "/any")
            assert (status, headers["retry-after"]) == (503, "1")
            assert (await ask(relay, "/health"))[0] == 503
            await until(lambda: engines.num_restarts == [2] and bool(engines.ready))
            assert (await ask(relay, "/health"))[0] == 200

    asyncio.run(work())
    assert "engine 0 ended with exit code 7: it is started again" in caplog.text


def test_an_engine_that_says_it_failed_is_started_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(tmp_path) as engines:
            await ask(Relay(engines), "/fail")
            await until(lambda: engines.num_restarts == [1] and bool(engines.ready))

    asyncio.run(work())


def test_refusals_of_the_front_are_logged_and_those_of_engines_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def engine(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(status_code=400, headers={"x-request-id": "of-the-engine"})(scope, receive, send)

    async def work() -> None:
        caplog.set_level(logging.INFO, "specdec.access")
        refusing = Refusals(Relay(Engines([])), by_key=False)
        status, headers, _ = await ask(refusing, "/v1/completions")
        assert status == 503
        assert f"id={headers['x-request-id']} client=10.0.0.9" in caplog.text
        assert 'reason="no engine serves at the moment' in caplog.text
        caplog.clear()
        await ask(refusing, "/health")
        status, headers, _ = await ask(Refusals(engine, by_key=False), "/v1/completions")
        assert (status, headers["x-request-id"]) == (400, "of-the-engine")
        assert caplog.text == ""

    asyncio.run(work())


def test_a_client_that_leaves_is_told_to_the_engine(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async def work() -> None:
        async with running(tmp_path) as engines:
            await ask(Relay(engines), "/wait", leaves_after=1)
            assert engines.all[0].num_running == 0
            seen = []
            await until(lambda: seen.append(capfd.readouterr().out) or "the client has left" in "".join(seen))

    asyncio.run(work())


def test_an_engine_that_ends_before_it_serves_ends_the_start(tmp_path: Path) -> None:
    async def work() -> None:
        engine = engine_of(0, tmp_path, [sys.executable, "-c", "raise SystemExit(2)"])
        with pytest.raises(EngineEndedError, match="engine 0 ended with exit code 2") as caught:
            await Engines([engine]).start()
        assert caught.value.code == 2

    asyncio.run(work())
