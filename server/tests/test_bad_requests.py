"""Wrong requests, however large, get an answer that says what is wrong and where, and soon."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from fastapi import FastAPI, Response
from pydantic import ValidationError
from servercheck.served import Served
from starlette.types import Message

from specdec import EngineError
from specdec_server import json_text, mistakes
from specdec_server.errors import ApiError, add_error_handlers, error_body
from specdec_server.json_text import parsed
from specdec_server.protocol import ChatRequest, CompletionRequest
from specdec_server.protocol.tokens import DetokenizeRequest
from specdec_server.reading import read, reading

MIB = 1024 * 1024


def make_app() -> FastAPI:
    """Checks bodies, and does nothing with them."""
    app = FastAPI()
    app.state.service = SimpleNamespace(prepared=prepared)
    add_error_handlers(app)

    @app.post("/v1/completions")
    async def complete(body: Annotated[CompletionRequest, reading(CompletionRequest)]) -> Response:
        _ = body.prompts, body.to_sampling_params(20)
        return Response("fine")

    @app.post("/v1/chat/completions")
    async def chat(body: Annotated[ChatRequest, reading(ChatRequest)]) -> Response:
        _ = body.conversation
        return Response("fine")

    @app.post("/detokenize")
    async def detokenize(body: Annotated[DetokenizeRequest, reading(DetokenizeRequest)]) -> Response:
        return Response("fine")

    return app


async def prepared(prepare: Callable[[], Any]) -> Any:
    """Stand in for the service's method."""
    return prepare()


APP = make_app()


def post(path: str, body: bytes) -> tuple[int, str]:
    """Return the status and the message of an answer."""
    answer: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        answer.append(message)

    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
    }  # fmt: skip
    asyncio.run(APP(scope, receive, send))
    told = answer[1]["body"].decode()
    return answer[0]["status"], told if told == "fine" else json.loads(told)["error"]["message"]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"n": True}, "n: true is not what it should be: a number"),
        ({"max_tokens": True}, "max_tokens: true"),
        ({"temperature": False}, "temperature: false"),
        ({"prompt": [True, 2]}, "prompt: [true, 2]"),
        ({"prompt": [[1, True]]}, "true and false are not numbers"),
        ({"stop_token_ids": [1, True]}, "stop_token_ids"),
        ({"logit_bias": {"1": True}}, "logit_bias"),
        ({"speculative": {"num_speculative_tokens": True}}, "speculative"),
        ({"stop_token_ids": [1, 2, "x"]}, 'stop_token_ids[2]: "x" is not'),
        ({"response_format": {"type": "jsn"}}, 'response_format.type: "jsn" is not'),
        ({"stream": True, "stream_options": {"include_usage": 7}}, "stream_options.include_usage: 7 is not"),
        ({"prompt": "\ud800"}, "an unpaired surrogate"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(body: dict[str, Any], told: str) -> None:
    status, message = post("/v1/completions", json.dumps({"prompt": "x"} | body).encode())
    assert (status, told in message) == (400, True), message


def test_booleans_that_are_meant_are_taken() -> None:
    body = {"prompt": "x", "stream": True, "echo": False, "speculative": False, "ignore_eos": True}
    assert post("/v1/completions", json.dumps(body).encode()) == (200, "fine")
    body = {"prompt": "x", "structured_outputs": {"json_object": True}, "metadata": {"a": True}}
    assert post("/v1/completions", json.dumps(body).encode()) == (200, "fine")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"prompt": "x",\n "n": }', "at line 2, column 7: expected value"),
        (b"{", "at line 1, column 1"),
        (b"", "not a JSON object"),
        (b"[1]", "not a JSON object"),
        (b"\xff\xfe", "at line 1, column 1"),
        (b"[" * 100_000, "recursion limit exceeded"),
        (b'{"n": ' + b"9" * 5000 + b"}", "number out of range"),
    ],
    ids=range(7),
)
def test_what_is_not_json_is_told_with_its_place(body: bytes, told: str) -> None:
    status, message = post("/v1/completions", body)
    assert (status, told in message) == (400, True), message


MANY = 100_000
HUGE = {
    "nulls": ("/v1/completions", b'{"prompt": [' + b"null," * MANY + b"null]}"),
    "lists": ("/v1/completions", b'{"prompt": [' + b"[]," * MANY + b"[]]}"),
    "fields": ("/v1/completions", b'{"prompt": "x"' + b"".join(b',"f%d":0' % i for i in range(MANY)) + b"}"),
    "biases": ("/v1/completions", b'{"logit_bias": {"a": 1' + b"".join(b',"a%d":0' % i for i in range(MANY)) + b"}}"),
    "stops": ("/v1/completions", b'{"prompt": "x", "stop": [' + b"{}," * MANY + b"{}]}"),
    "messages": ("/v1/chat/completions", b'{"messages": [' + b"1," * MANY + b"1]}"),
    "tokens": ("/detokenize", b'{"tokens": [' + b'"a",' * MANY + b'"a"]}'),
}  # fmt: skip


@pytest.mark.parametrize("name", HUGE)
def test_of_many_mistakes_few_are_looked_for(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path, body = HUGE[name]
    found = []

    explained = mistakes.explained

    def counted(path: str, kind: type, error: ValidationError, body: dict) -> Any:
        found.append(error.error_count())
        return explained(path, kind, error, body)

    monkeypatch.setattr("specdec_server.reading.explained", counted)
    status, message = post(path, body)
    assert 1 <= max(found) <= 10
    assert status == 400
    assert len(message) < 500


def test_at_the_end_clients_read_a_sentence_for_clients() -> None:
    told = error_body(EngineError("this AsyncLLM has been shut down"))["error"]
    assert told["message"].startswith("the server is being shut down: send the request again")
    assert told["code"] == "shutting_down"
    failed = EngineError("the engine failed: OSError: gone")
    failed.__cause__ = OSError("gone")
    assert "the engine failed" in error_body(failed)["error"]["message"]


def nested(depth: int, kind: str) -> Any:
    """Return JSON text of that depth: lists, objects, or a schema."""
    opening, closing, core = {
        "lists": ("[", "]", "1"),
        "objects": ('{"a":', "}", "1"),
        "schema": ('{"type":"object","properties":{"a":', "}}", '{"type":"string"}'),
    }[kind]
    count = depth // 2 if kind == "schema" else depth
    return opening * count + core + closing * count


USER = '{"role": "user", "content": "x"}'
PLACES = {
    "message": '{"messages": [{"role": "user", "content": "x", "name": %s}]}',
    "content": '{"messages": [{"role": "user", "content": %s}]}',
    "tool": '{"messages": [' + USER + '], "tools": [{"type": "function", "function": {"name": "f", "parameters": %s}}]}',
    "strict tool": '{"messages": [' + USER + '], "tool_choice": "required", "tools": '
    '[{"type": "function", "function": {"name": "f", "strict": true, "parameters": %s}}]}',
    "schema": '{"messages": [' + USER + '], "response_format": {"type": "json_schema", "json_schema": {"schema": %s}}}',
    "variable": '{"messages": [' + USER + '], "chat_template_kwargs": {"a": %s}}',
    "metadata": '{"messages": [' + USER + '], "metadata": {"a": %s}}',
    "choice": '{"messages": [' + USER + '], "structured_outputs": {"json": %s}}',
}  # fmt: skip


@pytest.mark.parametrize("depth", [90, 190, 450, 700, 980, 2000])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.sampled(12, slow=12)
def test_nothing_is_nested_too_deeply_to_be_told(served: Served, place: str, depth: int) -> None:
    for kind in ("lists", "objects", "schema"):
        body = (PLACES[place] % nested(depth, kind)).replace('{"messages"', '{"max_tokens": 1, "messages"', 1)
        status, answer = served.ask("/v1/chat/completions", body.encode())
        assert status in ((200, 400) if depth < 200 else (400,)), (kind, answer)


@pytest.mark.parametrize("depth", [90, 190, 450, 700, 980, 2000])
@pytest.mark.sampled(2, slow=2)
def test_arguments_of_earlier_calls_may_be_nested(served: Served, depth: int) -> None:
    """They are JSON in a text, which templates may take apart."""
    for kind in ("lists", "objects"):
        arguments = nested(depth, kind) if kind == "objects" else f'{{"a": {nested(depth, kind)}}}'
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
        messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "c", "content": "<|endoftext|>"}]  # fmt: skip
        status, answer = served.ask("/v1/chat/completions", {"messages": messages, "max_tokens": 1})
        assert status == 200 or "max_model_len" in answer["error"]["message"], answer
        item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments}
        output = {"type": "function_call_output", "call_id": "c", "output": "<|endoftext|>"}
        body = {"input": [item, output], "max_output_tokens": 1}
        status, answer = served.ask("/v1/responses", body)
        assert status == 200 or "max_model_len" in answer["error"]["message"], answer


@pytest.mark.parametrize("raw", [b"NaN", b'{"a": Infinity}', b"[-Infinity]"])
def test_numbers_that_are_none_are_no_json(raw: bytes) -> None:
    with pytest.raises(ApiError, match="not JSON"):
        parsed(raw)


def test_empty_objects_are_items() -> None:
    with pytest.raises(ApiError, match="the body has 260002 commas") as caught:
        parsed(b"[" + b"{}," * 130_000 + b"{}]")
    assert caught.value.status == 413


def test_bodies_are_parsed_one_at_a_time() -> None:
    with ThreadPoolExecutor(1) as threads:
        with json_text._ONE_AT_A_TIME:
            found = threads.submit(parsed, b"[1]")
            with pytest.raises(TimeoutError):
                found.result(timeout=0.1)
        assert found.result(timeout=30) == [1]


@pytest.mark.parametrize(
    ("kind", "length", "place"),
    [
        ("application/json", 10, "event loop"),
        ("application/vnd.api+json; charset=utf-8", 20_000, "thread"),
        ("application/xjson", 10, "refused"),
        ("text/json", 10, "refused"),
    ],
)
def test_long_bodies_are_read_outside_the_event_loop(kind: str, length: int, place: str) -> None:
    """And only those that say that they are JSON."""
    seen: list[str] = []
    raw = json.dumps({"prompt": "x" * length}).encode()

    async def body() -> bytes:
        return raw

    async def prepared(work: Callable[[], Any]) -> Any:
        seen.append("thread")
        return work()

    request = SimpleNamespace(
        headers={"content-type": kind}, url=SimpleNamespace(path="/v1/completions"), body=body
    )
    reader = reading(CompletionRequest).dependency
    with pytest.raises(ApiError, match="Content-Type") if place == "refused" else nullcontext():
        got = asyncio.run(reader(request, SimpleNamespace(prepared=prepared)))
        assert got.prompt == "x" * length
    assert seen == (["thread"] if place == "thread" else [])


def test_the_first_of_a_list_is_named() -> None:
    with pytest.raises(ApiError, match=r'^tokens\[0\]: "a" is not'):
        read(b'{"tokens": ["a", 1]}', DetokenizeRequest, "/detokenize")
