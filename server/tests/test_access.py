"""The line of each request, its id, its span, and what an error that nobody expected leaves behind."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from specdec import ConfigError
from specdec.outputs import CompletionOutput, RequestMetrics, RequestOutput
from specdec_server.access import Access, line_of
from specdec_server.key import KeyCheck
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
    assert "status=499" in line_of(RequestRecord("POST", "/v1/completions", "x"))


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
