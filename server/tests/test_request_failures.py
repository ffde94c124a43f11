"""What fails for one request in the engine is an error of that request; the server goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from time import monotonic, sleep
from typing import Any

import pytest
from servercheck.served import Served, serving
from speccheck.models import MAX_LEN
from speccheck.spelling import gemma_tokenizer, ids_of, speaker

from specdec_server import Settings

TOKENIZER = gemma_tokenizer()
BAD = 666
"""Seed of requests that fail."""


@pytest.fixture(scope="module")
def bytewise() -> Iterator[Served]:
    """A model whose tokenizer falls back to bytes."""
    settings = Settings(model_names=("tiny",), log_every_s=0.0)
    with serving(settings, speaker(TOKENIZER), tokenizer=TOKENIZER, max_model_len=MAX_LEN) as found:
        yield found


def is_well(served: Served) -> bool:
    """Return whether the server is healthy, answers, and has nothing left of earlier requests."""
    body = {"prompt": ids_of(TOKENIZER, "x"), "max_tokens": 3, "ignore_eos": True}
    status, answer = served.ask("/v1/completions", body)
    engine, end = served.llm._built.engine, monotonic() + 10
    while (
        engine._requests and monotonic() < end
    ):  # the engine's thread may still be in the step that ends them
        sleep(0.01)
    return (
        (served.ask("/health")[0], status) == (200, 200)
        and not engine._requests
        and answer["usage"]["completion_tokens"] == 3
    )


@pytest.mark.parametrize(
    "more", [{}, {"stop": "zz"}, {"logprobs": 3, "echo": True}, {"return_draft_steps": True}], ids=str
)
@pytest.mark.parametrize("stream", [False, True])
def test_clients_that_allow_only_bytes_end_nothing(
    bytewise: Served, more: dict[str, Any], stream: bool
) -> None:
    body = {
        "prompt": ids_of(TOKENIZER, "x", b"\xc3\xa9"), "max_tokens": 30, "ignore_eos": True, "n": 4, "seed": 1,
        "allowed_token_ids": ids_of(TOKENIZER, b"\xc3\xa9\xff"), "stream": stream,
    }  # fmt: skip
    if stream:
        events = [json.loads(event) for event in bytewise.events("/v1/completions", body | more)[:-1]]
        choices = [choice for event in events for choice in event["choices"]]
        reasons = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    else:
        status, answer = bytewise.ask("/v1/completions", body | more)
        assert status == 200
        assert all(choice["text"] for choice in answer["choices"])
        reasons = [choice["finish_reason"] for choice in answer["choices"]]
    assert reasons == ["length"] * 4
    assert is_well(bytewise)


def failing(function: Callable[..., Any], num_right: int) -> Callable[..., Any]:
    """Return a function that raises after so many calls."""
    calls = count()

    def call(*arguments: Any) -> Any:
        if next(calls) >= num_right:
            raise SystemExit("boom")
        return function(*arguments)

    return call


@pytest.mark.parametrize(
    "find",
    [
        lambda request: (request.sequences[0].stop_checker._stream, "push"),
        lambda request: (request.sequences[0].logprobs, "take"),
        lambda request: (request, "output"),
    ],
    ids=["text", "log probabilities", "output"],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_fails_is_told_so_and_no_other(
    bytewise: Served, monkeypatch: pytest.MonkeyPatch, find: Callable[..., tuple[Any, str]], stream: bool
) -> None:
    right = bytewise.llm._input_processor.prepare

    def prepare(name: str, prompt: Any, params: Any, **more: Any) -> Any:
        request = right(name, prompt, params, **more)
        if params.seed == BAD:
            owner, what = find(request)
            # A stream that fails before its first event would be answered with a status.
            setattr(owner, what, failing(getattr(owner, what), num_right=40 if stream else 0))
        return request

    monkeypatch.setattr(bytewise.llm._input_processor, "prepare", prepare)
    body = {
        "prompt": ids_of(TOKENIZER, "x"),
        "max_tokens": 60,
        "temperature": 0,
        "ignore_eos": True,
        "logprobs": 1,
    }
    with ThreadPoolExecutor(5) as pool:
        others = [pool.submit(bytewise.ask, "/v1/completions", body | {"seed": seed}) for seed in range(4)]
        if stream:
            events = bytewise.events("/v1/completions", body | {"seed": BAD, "n": 1, "stream": True})
        else:
            status, message = bytewise.error("/v1/completions", body | {"seed": BAD})
            assert (status, "SystemExit: boom" in message) == (500, True)
    if stream:
        told = json.loads(events[-2])["error"]
        assert (told["code"], "SystemExit: boom" in told["message"]) == ("generation_error", True)
    answers = [other.result() for other in others]
    assert {status for status, _ in answers} == {200}
    assert len({answer["choices"][0]["text"] for _, answer in answers}) == 1
    assert is_well(bytewise)
