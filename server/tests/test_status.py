import asyncio
import http.client
import json
import re
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from urllib.parse import urlparse

import pytest
from openai import AuthenticationError, NotFoundError, OpenAI
from servercheck.served import Served, serving
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from specdec import LLM, ConfigError, Scores
from specdec.engine.step import Step
from specdec.outputs import RequestOutput
from specdec_server import Settings
from specdec_server.key import KeyCheck
from specdec_server.limits import Limits

MESSAGES = [{"role": "user", "content": "def main("}]
LABELS = '{engine="0",model_name="zoo"}'


def test_models_are_listed(client: OpenAI) -> None:
    assert [model.id for model in client.models.list().data] == ["zoo", "small"]
    assert client.models.retrieve("small").id == "small"
    with pytest.raises(NotFoundError, match="no model 'large' here"):
        client.models.retrieve("large")
    assert client.completions.create(model="small", prompt="x", max_tokens=1).model == "small"


def test_health_version_and_schema(served: Served) -> None:
    assert served.ask("/health")[0] == 200
    assert served.ask("/version") == (200, {"version": "0.1.0"})
    schema = served.ask("/openapi.json")[1]
    bodies = {"CompletionRequest", "ChatRequest", "ResponsesRequest", "TokenizeRequest", "DetokenizeRequest"}
    assert bodies <= set(schema["components"]["schemas"])
    references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(schema)))
    assert bodies <= references <= set(schema["components"]["schemas"])


def test_tokens_there_and_back(served: Served, llm: LLM) -> None:
    tokenizer = llm.get_tokenizer()
    ids = tokenizer("def main(")["input_ids"]
    _, told = served.ask("/tokenize", {"prompt": "def main(", "return_token_strs": True})
    assert told == {
        "count": len(ids),
        "max_model_len": 1024,
        "tokens": ids,
        "token_strs": tokenizer.convert_ids_to_tokens(ids),
    }
    assert served.ask("/detokenize", {"tokens": ids}) == (200, {"prompt": "def main("})
    _, told = served.ask("/tokenize", {"messages": [{"role": "user", "content": "hi"}]})
    assert served.ask("/detokenize", {"tokens": told["tokens"]})[1]["prompt"] == "<user>hi\n<assistant>"
    assert served.error("/detokenize", {"tokens": [10**6]})[0] == 400
    assert served.error("/tokenize", {})[0] == 400


def test_counters_tell_what_was_done(served: Served) -> None:
    before = served.counters()
    body = {
        "prompt": "import os\nimport sys\n\n\ndef read_lines(path):\n",
        "temperature": 0,
        "max_tokens": 40,
    }
    _, answer = served.ask("/v1/completions", body)
    after = served.counters()

    def grown(name: str) -> float:
        return after[name] - before.get(name, 0.0)

    told = answer["metrics"]["speculative_decoding"]
    assert grown(f"vllm:spec_decode_num_drafts_total{LABELS}") == told["num_spec_steps"] > 0
    assert grown(f"vllm:spec_decode_num_draft_tokens_total{LABELS}") == told["num_draft_tokens"]
    assert grown(f"vllm:spec_decode_num_accepted_tokens_total{LABELS}") == told["num_accepted_draft_tokens"]
    by_position = [
        grown(
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="zoo",position="{i}"}}'
        )
        for i in range(4)
    ]
    assert sum(by_position) == told["num_accepted_draft_tokens"]
    assert grown(f"vllm:generation_tokens_total{LABELS}") == answer["usage"]["completion_tokens"]
    assert grown(f"vllm:prompt_tokens_total{LABELS}") == answer["usage"]["prompt_tokens"]
    assert grown(f"vllm:e2e_request_latency_seconds_count{LABELS}") == 1
    assert grown('vllm:request_success_total{engine="0",finished_reason="length",model_name="zoo"}') == 1
    assert after[f"vllm:num_requests_running{LABELS}"] == 0


@pytest.mark.parametrize("is_streaming", [True, False])
def test_a_client_that_leaves_ends_its_request(served: Served, is_streaming: bool) -> None:
    where = urlparse(served.url)
    aborted = 'vllm:request_success_total{engine="0",finished_reason="abort",model_name="zoo"}'
    before = served.counters().get(aborted, 0.0)
    connection = http.client.HTTPConnection(where.hostname, where.port)
    body = {"prompt": "def main(", "max_tokens": 1000, "ignore_eos": True, "stream": is_streaming, "n": 8}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    if is_streaming:
        answer = connection.getresponse()
        assert answer.readline().startswith(b"data: ")
        answer.close()
    else:
        time.sleep(0.2)
    connection.close()
    deadline = time.monotonic() + 20
    while (counters := served.counters())[f"vllm:num_requests_running{LABELS}"] or counters.get(
        aborted
    ) == before:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert counters[aborted] == before + 8
    steps = counters[f"specdec:num_steps_total{LABELS}"]
    time.sleep(0.2)
    assert served.counters()[f"specdec:num_steps_total{LABELS}"] == steps


def test_a_stream_ends_with_done(served: Served) -> None:
    events = served.events("/v1/completions", {"prompt": "def main(", "max_tokens": 4, "stream": True})
    assert events[-1] == "[DONE]"
    assert all(json.loads(event)["object"] == "text_completion" for event in events[:-1])


def test_only_who_has_the_key_gets_in() -> None:
    settings = Settings(model_names=("zoo",), api_key="sesame", log_every_s=0.0)
    with serving(settings) as served:
        with (
            OpenAI(base_url=f"{served.url}/v1", api_key="other", max_retries=0) as client,
            pytest.raises(AuthenticationError, match="key is missing or wrong"),
        ):
            client.models.list()
        with OpenAI(base_url=f"{served.url}/v1", api_key="sesame") as client:
            assert client.models.list().data[0].id == "zoo"
        assert served.error("/v1/completions", {"prompt": "x"})[0] == 401
        assert served.error("/tokenize", {"prompt": "x"})[0] == 401
        assert served.error("/v1/completions", b"{")[0] == 401
        assert served.ask("/openapi.json")[0] == 401
        assert served.error("/v1/completions", {"prompt": "x"}, {"Authorization": "Bearer "})[0] == 401
        assert served.ask("/health")[0] == 200
        assert served.ask("/metrics")[0] == 200
        is_open = {path for path in paths_of(served) if served.ask(path)[0] != 401}
        assert is_open == {"/health", "/ping", "/version", "/metrics", "/", "/docs"}
        assert served.ask("/server_info")[0] == 401
        assert served.ask("/server_info", headers={"Authorization": "Bearer sesame"})[0] == 200


def paths_of(served: Served) -> set[str]:
    """Every path that the server has a route for."""
    pending, found = list(served.app.routes), set()
    while pending:
        route = pending.pop()
        pending += getattr(getattr(route, "original_router", None), "routes", [])
        if isinstance(route, Route):
            found.add(route.path.replace("{", "").replace("}", "").replace(":path", ""))
    assert {"/server_info", "/v1/models", "/v1/completions", "/v1/responses/response_id"} <= found
    return found


@pytest.mark.parametrize(
    ("path", "open_to_all"), [("/health", True), ("/proxy/health", True), ("/proxy/v1/models", False)]
)
def test_a_proxy_may_put_a_path_before_ours(path: str, open_to_all: bool) -> None:
    answers = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        answers.append("came in")

    async def send(message: Message) -> None:
        answers.append(message.get("status", "body"))

    async def receive() -> Message:
        raise AssertionError("nothing of the body is read")

    scope = {"type": "http", "path": path, "root_path": "/proxy", "headers": []}
    asyncio.run(KeyCheck(app, "sesame")(scope, receive, send))
    assert answers == (["came in"] if open_to_all else [401, "body"])


def test_an_engine_that_failed_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with serving(Settings(model_names=("zoo",), log_every_s=0.0)) as served:

        def fail() -> None:
            raise OSError("the device is gone")

        served.llm._built.engine.step = fail
        status, told = served.error("/v1/completions", {"prompt": "x"})
        assert status == 503
        assert "the device is gone" in told
        assert served.ask("/health")[0] == 503
        status, told = served.error("/v1/completions", {"prompt": "x", "stream": True})
        assert status == 503
        assert "the device is gone" in told
        assert served.counters()[f"vllm:num_requests_running{LABELS}"] == 0
    assert "the engine failed" in caplog.text
    assert caplog.records[0].exc_info is not None


def test_a_text_that_cannot_go_on_is_an_error(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = served.llm._built.scorer
    real = scorer.score

    def no_numbers(step: Step) -> Scores:
        scores = real(step)
        scores.logits.fill_(float("nan"))
        return scores

    monkeypatch.setattr(scorer, "score", no_numbers)
    body = {"prompt": "x", "max_tokens": 4}
    for path, asked in (("completions", body), ("chat/completions", {"messages": MESSAGES, "max_tokens": 4})):
        status, told = served.error(f"/v1/{path}", asked)
        assert status == 500
        assert "not numbers" in told
    assert served.error("/v1/completions", body | {"stream": True})[0] == 500


def test_an_error_within_a_stream_is_an_event(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = served.llm._built.engine
    real, steps = engine._show, []

    def failing(step: Step) -> list[RequestOutput]:
        outputs = real(step)
        steps.append(len(outputs))
        if len(steps) < 5:
            return outputs
        for output in outputs:
            output.outputs[0] = replace(output.outputs[0], finish_reason="error", stop_reason="no more")
        return [replace(output, finished=True) for output in outputs]

    monkeypatch.setattr(engine, "_show", failing)
    events = served.events(
        "/v1/completions", {"prompt": "x", "max_tokens": 50, "ignore_eos": True, "stream": True}
    )
    assert "the text cannot go on: no more" in json.loads(events[-2])["error"]["message"]
    assert events[-1] == "[DONE]"
    assert len(events) > 2


def test_who_waits_for_a_place_and_leaves_gives_it_up(served: Served) -> None:
    """Also where nothing of the stream has come yet."""
    where = urlparse(served.url)
    long = json.dumps({"prompt": "def main(", "max_tokens": 900, "ignore_eos": True, "stream": True, "n": 64})
    connections = [http.client.HTTPConnection(where.hostname, where.port) for _ in range(3)]
    for connection in connections:
        connection.request("POST", "/v1/completions", long, {"Content-Type": "application/json"})
    until(lambda: served.llm.num_requests[1] > 0)
    for connection in reversed(connections):
        connection.close()
    until(lambda: served.llm.num_requests == (0, 0))


def test_an_id_in_use_harms_nobody(served: Served) -> None:
    where = urlparse(served.url)
    body = {"prompt": "def main(", "max_tokens": 300, "ignore_eos": True, "request_id": "same"}
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(served.ask, "/v1/completions", body)
        until(lambda: any(served.llm.num_requests))
        assert served.error("/v1/completions", body)[0] == 400
        for _ in range(5):
            connection = http.client.HTTPConnection(where.hostname, where.port)
            connection.request(
                "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
            )
            connection.close()
        status, answer = first.result()
    assert (status, answer["choices"][0]["finish_reason"]) == (200, "length")


@pytest.mark.slow
def test_one_client_does_not_fill_the_queue_for_others() -> None:
    settings = Settings(
        model_names=("zoo",), api_key=("A", "B"), log_every_s=0.0, limits=Limits(max_queued_requests=40)
    )
    with serving(settings, max_num_seqs=1) as served, ThreadPoolExecutor(3) as pool:
        mine, other = ({"Authorization": f"Bearer {key}"} for key in "AB")
        body = {"prompt": ["def main("] * 20, "max_tokens": 40, "ignore_eos": True}
        status, told = served.error("/v1/completions", body | {"prompt": ["x"] * 21}, mine)
        assert (status, "the server takes 20 at once" in told) == (400, True)
        sent = [pool.submit(served.ask, "/v1/completions", body, mine) for _ in range(3)]
        until(lambda: served.llm.num_waiting_requests >= 40)
        one = {"prompt": "def main(", "max_tokens": 1}
        assert served.ask("/v1/completions", one, mine)[0] == 429
        assert served.ask("/v1/completions", one, other)[0] == 200
        assert [task.result()[0] for task in sent] == [200] * 3
        assert served.ask("/v1/completions", one, mine)[0] == 200


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_pages_of_other_origins_come_in_only_if_they_may() -> None:
    asked = {"Origin": "http://page", "Access-Control-Request-Method": "POST"}
    settings = Settings(
        model_names=("zoo",), log_every_s=0.0, allowed_origins=("http://page",), api_key="sesame"
    )
    with serving(settings) as served:
        request = urllib.request.Request(served.url + "/v1/completions", headers=asked, method="OPTIONS")
        with urllib.request.urlopen(request) as answer:
            assert answer.headers["access-control-allow-origin"] == "http://page"


@pytest.mark.parametrize("wrong", [{"api_key": " "}, {"model_names": ()}, {"model_names": ("",)}])
def test_settings_that_make_no_sense_are_refused(wrong: dict) -> None:
    with pytest.raises(ConfigError, match="empty"):
        Settings(**{"model_names": ("zoo",)} | wrong)
