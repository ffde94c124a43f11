"""The line of each request, its id, its span, and what an error that nobody expected leaves behind."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

import pytest
from opentelemetry import trace
from servercheck.served import Served, serving
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from specdec import ConfigError
from specdec.outputs import CompletionOutput, RequestMetrics, RequestOutput
from specdec_server import Settings
from specdec_server.access import Access, line_of
from specdec_server.key import KeyCheck
from specdec_server.limits import Limits
from specdec_server.reason import logged
from specdec_server.record import CURRENT_RECORD, RequestRecord
from specdec_server.tracing import Tracing

SECRET = "nobody is to read this"
OUTPUT = RequestOutput(
    "cmpl-1", SECRET, [1, 2, 3],
    [CompletionOutput(0, SECRET, [4, 5], "stop"), CompletionOutput(1, SECRET, [6], None)],
    False, RequestMetrics(2, 8, 5, [2, 2, 1], 0.5, 2.5, 0.25), num_cached_tokens=2,
)  # fmt: skip


def ask(
    app: Callable[..., Any],
    path: str = "/v1/completions",
    headers: dict[str, str] | None = None,
    client: tuple[str, int] = ("10.0.0.7", 1),
    **settings: Any,
) -> list[Message]:
    answer: list[Message] = []

    async def send(message: Message) -> None:
        answer.append(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": SECRET.encode(), "more_body": False}

    given = {
        "by_key": False,
        "is_logged": True,
        "tracing": Tracing(),
        "on_refusal": lambda status: None,
    } | settings
    raw = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    scope = {"type": "http", "method": "POST", "path": path, "headers": raw, "client": client}
    asyncio.run(Access(app, **given)(scope, receive, send))
    return answer


async def generating(scope: Scope, receive: Receive, send: Send) -> None:
    record = CURRENT_RECORD.get()
    assert record is not None
    record.saw(OUTPUT)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": SECRET.encode()})


async def failing(scope: Scope, receive: Receive, send: Send) -> None:
    raise OSError("the disk is gone")


def test_a_line_has_the_facts_and_nothing_of_the_text(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "specdec.access"):
        answer = ask(
            generating, headers={"x-request-id": "mine-1", "authorization": "Bearer sesame"}, by_key=True
        )
    (line,) = [record.getMessage() for record in caplog.records]
    assert "sesame" not in line
    assert SECRET not in line
    facts = dict(word.split("=") for word in line.split()[2:])
    assert line.startswith("POST /v1/completions status=200 id=mine-1 client=key-")
    wanted = {
        "prompt_tokens": "3", "cached_tokens": "2", "output_tokens": "3", "drafted": "8", "accepted": "5",
        "finish": "abort,stop", "queued": "0.250s", "first": "0.500s",
    }  # fmt: skip
    assert {name: facts[name] for name in wanted} == wanted
    assert Headers(raw=answer[0]["headers"])["x-request-id"] == "mine-1"


@pytest.mark.parametrize("app", [generating, failing], ids=["answered", "failed"])
def test_a_path_forges_no_line(caplog: pytest.LogCaptureFixture, app: Callable[..., Any]) -> None:
    path = "/x\n2026-01-01 INFO specdec: all is well\x1b[2J\x85\u2028 status=200 id=me é"
    with caplog.at_level(logging.INFO, "specdec.access"):
        ask(app, path, client=("1.2.3.4\x1b[31m\n", 1))
    for record in caplog.records:
        told = record.getMessage()
        assert told.isprintable()
        assert told.isascii()
        assert len(told.split(" status=")) <= 2
        assert "/x%0A2026-01-01%20INFO" in told


def test_who_only_looks_after_the_server_leaves_no_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "specdec.access"):
        ask(generating, "/health")
        ask(generating, is_logged=False)
        assert caplog.records == []
        first = ask(generating, headers={"x-request-id": "not an id\n"})
    assert len(Headers(raw=first[0]["headers"])["x-request-id"]) == 16


def test_an_error_that_nobody_expected_is_logged_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    refused: list[int] = []
    answer = ask(failing, headers={"x-request-id": "r7"}, on_refusal=refused.append)
    assert (answer[0]["status"], refused) == (500, [500])
    told = json.loads(answer[1]["body"])["error"]
    assert told["message"] == "the server made a mistake; its log tells more about the request r7"
    assert "disk" not in json.dumps(told)
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "id=r7" in record.getMessage()
    assert "the disk is gone" in caplog.text
    assert "Traceback" in caplog.text


def test_a_request_without_an_answer_was_left() -> None:
    line = line_of(RequestRecord("POST", "/v1/completions", "x"))
    assert "status=499" in line
    assert line.endswith(' reason="the client left"')


def line_of_request(caplog: pytest.LogCaptureFixture, ask: Callable[[], int]) -> str:
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "specdec.access"):
        status = ask()
        deadline = monotonic() + 10
        while not caplog.records and monotonic() < deadline:
            sleep(0.01)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "specdec.access"]
    assert f" status={status} " in line
    return line


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        ("/v1/completions", {"prompt": SECRET, "max_token": 1}, 400, "knows no field 'max_token': did you mean 'max_tokens'?"),
        ("/v1/completions", {"prompt": {"text": SECRET}}, 400, "prompt is not what it should be: "),
        ("/v1/completions", {"prompt": SECRET, "max_tokens": SECRET}, 400, "max_tokens is not what it should be: "),
        ("/v1/completions", {"prompt": SECRET, "temperature": -1}, 400, "'temperature' = -1"),
        ("/v1/completions", {"prompt": SECRET * 500, "max_tokens": 1}, 400, "max_model_len"),
        ("/v1/completions", {"prompt": "x", "structured_outputs": {"regex": f"({SECRET}"}}, 400, "regex"),
        ("/v1/completions", {"prompt": "x", "stop": ["y"] * 200}, 400, "stop"),
        ("/v1/completions", f'{{"prompt": "{SECRET}'.encode(), 400, "the body is not JSON: at line 1"),
        ("/v1/completions", b"", 400, "the body is not a JSON object"),
        ("/v1/completions", b"[" * 300_000, 413, "300000 commas, colons and opening brackets"),
        ("/v1/chat/completions", {"messages": [{"role": SECRET, "content": SECRET}]}, 400, "role"),
        ("/v1/completions", {"model": "other", "prompt": SECRET}, 404, "there is no model 'other' here"),
        ("/v1/nothing", {"prompt": SECRET}, 404, "/v1/nothing: Not Found"),
        ("/health", {}, 405, "Method Not Allowed"),
        ("/v1/responses", {"input": SECRET, "previous_response_id": "resp_0"}, 400, "resp_0"),
    ],
)  # fmt: skip
def test_the_line_of_a_refused_request_has_the_reason_and_nothing_of_the_text(
    caplog: pytest.LogCaptureFixture, served: Served, path: str, body: object, status: int, reason: str
) -> None:
    line = line_of_request(caplog, lambda: served.ask(path, body)[0])
    assert f" status={status} " in line
    told = json.loads(line.partition(" reason=")[2])
    assert reason in told
    assert "nobody" not in line
    assert line.isascii()


def test_the_reason_of_other_refusals(caplog: pytest.LogCaptureFixture, served: Served) -> None:
    given = {"Host": "evil.example"}
    with serving(
        Settings(
            model_names=("zoo",), api_key="sesame", limits=Limits(max_request_bytes=100), log_every_s=0.0
        )
    ) as other:
        line = line_of_request(caplog, lambda: other.ask("/v1/models", headers=given)[0])
        assert "status=401" in line
        assert "the key is missing or wrong" in line
        key = {"Authorization": "Bearer sesame"}
        line = line_of_request(caplog, lambda: other.ask("/v1/completions", {"prompt": SECRET * 9}, key)[0])
        assert "status=413" in line
        assert "--max-request-bytes" in line
        assert "sesame" not in line
    line = line_of_request(caplog, lambda: served.ask("/v1/completions", {"prompt": "x", "max_tokens": 1})[0])
    assert "reason" not in line


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("the server's 'a b' and 'name', it's \"x y\"", "the server's '...' and 'name', it's \"...\""),
        ("'it\\'s said' and then", "'...' and then"),
        ("two\n  lines \x1b[31m\u2028 é", "two lines \x1b[31m é"),
        ("x" * 500, "x" * 240 + "..."),
    ],
)
def test_a_reason_is_one_quoted_word_without_what_is_quoted(message: str, told: str) -> None:
    assert json.loads(logged(message)) == told
    assert logged(message).isascii()
    assert logged(message).isprintable()


class Spans:
    """A provider of tracers, and a tracer, that keep what they are told."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []

    def get_tracer(self, *arguments: Any, **named: Any) -> Spans:
        return self

    def start_span(self, name: str, **named: Any) -> Spans:
        self.spans.append({"name": name} | named)
        return self

    def end(self) -> None:
        self.spans[-1]["is_ended"] = True


def test_requests_have_spans() -> None:
    provider = Spans()
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    ask(generating, headers={"traceparent": parent, "x-request-id": "r9"}, tracing=Tracing(provider=provider))
    ask(failing, tracing=Tracing(provider=provider))
    (span,) = provider.spans
    assert (span["name"], span["is_ended"]) == ("llm_request", True)
    assert span["attributes"]["gen_ai.request.id"] == "r9"
    assert span["attributes"]["gen_ai.usage.completion_tokens"] == 3
    assert span["attributes"]["specdec.num_accepted_tokens"] == 5
    assert span["attributes"]["gen_ai.latency.time_in_queue"] == 0.25
    context = trace.get_current_span(span["context"]).get_span_context()
    assert context.trace_id == 0x0AF7651916CD43DD8448EB211C80319C


def test_an_endpoint_needs_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(ConfigError, match="pip install opentelemetry-sdk"):
        Tracing("http://127.0.0.1:4318/v1/traces")


@pytest.mark.parametrize(
    ("given", "is_known"), [("Bearer b", True), ("bearer  b", True), ("Basic b", False), ("b", False)]
)
def test_a_key_is_a_bearers(given: str, is_known: bool) -> None:
    async def app(*_: object) -> None: ...

    assert KeyCheck(app, ("a", "b"))._is_known(Headers({"authorization": given})) is is_known
