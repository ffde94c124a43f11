"""A grammar that is too dear for a text is the client's fault: its own samples end, with the reason, and nothing else does."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from servercheck.served import Served

from specdec_runtime.structured_outputs import compiler

REPORTED = {"regex": "(a?){200}a{200}"}
COSTLY: dict[str, dict[str, Any]] = {  # no text of 60 tokens ends any of them
    "regex": {"regex": "[a-l]*a[a-l]{200}"},
    "optional": REPORTED,
    "json": {"json": {"type": "string", "pattern": "^(a|b|ab|ba){80,300}(ab|ba){1,300}c$"}},
    "ebnf": {"grammar": 'root ::= [a-l]* "a" [a-l]{200}'},
    "lark": {"grammar": "start: /.{80}(.?){1000}x/"},
    "choice": {"choice": ["ab" * 2000, "abc" * 1000]},
}
TELLS = "structured_outputs: the grammar needs too much work for this text"
PLAIN = {"prompt": "def main(", "max_tokens": 12, "temperature": 0, "ignore_eos": True}


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few states, so that every grammar here comes to the limit."""
    monkeypatch.setitem(compiler._LIMITS, "max_lexer_states", 60)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Any:
    """Nothing that a client sends is an error in the log."""
    yield
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR or r.exc_info]


def body(grammar: Any, **keys: Any) -> dict[str, Any]:
    return {
        "prompt": "x",
        "max_tokens": 60,
        "temperature": 0.9,
        "seed": 1,
        "structured_outputs": grammar,
    } | keys


def finishes(choices: list[dict[str, Any]]) -> set[tuple[str, bool]]:
    """How choices end, and whether the reason is told."""
    return {(c["finish_reason"], TELLS in str(c["stop_reason"])) for c in choices if c["finish_reason"]}


def test_what_looking_ahead_costs_ends_no_request(served: Served) -> None:
    status, answer = served.ask("/v1/completions", body(REPORTED, n=2))
    assert status == 200
    assert [(c["finish_reason"], c["text"]) for c in answer["choices"]] == [("length", "a" * 60)] * 2


@pytest.mark.parametrize("kind", COSTLY)
def test_a_sample_ends_with_the_reason(served: Served, little: None, kind: str) -> None:
    status, answer = served.ask("/v1/completions", body(COSTLY[kind], n=2))
    assert (status, finishes(answer["choices"])) == (200, {("error", True)})
    events = served.events("/v1/completions", body(COSTLY[kind], stream=True))
    pieces = [json.loads(event) for event in events[:-1]]
    assert finishes([choice for piece in pieces for choice in piece["choices"]]) == {("error", True)}
    assert not any("error" in piece for piece in pieces)


def test_prompts_of_one_request_end_by_themselves(served: Served, little: None) -> None:
    """What one of them wrote is the reason, and the other goes on."""
    alone = served.ask("/v1/completions", PLAIN)[1]["choices"][0]["text"]
    status, answer = served.ask(
        "/v1/completions",
        body({"regex": "b{5}|[a-l]*a[a-l]{200}"}, prompt=["x", "y", "z"], logit_bias={}, n=8),
    )
    assert status == 200
    ends = finishes(answer["choices"])
    assert ("error", True) in ends
    assert all(choice["text"] for choice in answer["choices"] if choice["finish_reason"] != "error")
    assert served.ask("/v1/completions", PLAIN)[1]["choices"][0]["text"] == alone


@pytest.mark.parametrize("stream", [False, True])
def test_a_conversation_ends_with_the_reason(served: Served, little: None, stream: bool) -> None:
    asked = body(COSTLY["json"], messages=[{"role": "user", "content": "x"}], stream=stream)
    del asked["prompt"]
    if stream:
        events = [json.loads(event) for event in served.events("/v1/chat/completions", asked)[:-1]]
        choices = [choice for event in events for choice in event["choices"]]
    else:
        status, answer = served.ask("/v1/chat/completions", asked)
        assert status == 200
        choices = answer["choices"]
    assert finishes(choices) == {("error", True)}


def test_a_response_fails_with_the_reason(served: Served, little: None) -> None:
    asked = {
        "input": "x",
        "max_output_tokens": 60,
        "text": {"format": {"type": "json_schema", "name": "x", "schema": COSTLY["json"]["json"]}},
    }
    status, answer = served.ask("/v1/responses", asked)
    assert (status, answer["status"], answer["error"]["code"]) == (200, "failed", "invalid_prompt")
    assert TELLS in answer["error"]["message"]
    assert answer["completed_at"] is None


def test_parameters_that_exclude_each_other_end_with_the_reason(served: Served) -> None:
    status, answer = served.ask("/v1/completions", body({"regex": "zz+"}, allowed_token_ids=[5]))
    [choice] = answer["choices"]
    assert (status, choice["finish_reason"]) == (200, "error")
    assert "exclude each other" in choice["stop_reason"]
