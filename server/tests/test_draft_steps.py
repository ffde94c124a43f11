"""`return_draft_steps`: who drafted what, what was accepted, and the resulting text; nothing where it is not asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from servercheck.served import Served

PROMPT = "import os\nimport sys\n\n\ndef read_lines(path):\n"
CHAT = {"messages": [{"role": "user", "content": PROMPT}]}
ASKED = {"temperature": 0, "max_tokens": 40, "return_draft_steps": True}
PATHS = {"/v1/completions": {"prompt": PROMPT}, "/v1/chat/completions": CHAT}


def pieces(served: Served, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    events = served.events(path, PATHS[path] | body | {"stream": True})
    return [choice for event in events[:-1] for choice in json.loads(event)["choices"]]


def text_of(choice: dict[str, Any]) -> str:
    if "text" in choice:
        return str(choice["text"])
    return str((choice.get("delta") or choice.get("message") or {}).get("content") or "")


def steps_of(choices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [step for choice in choices for step in choice.get("draft_steps", [])]


@pytest.mark.parametrize("path", PATHS)
def test_steps_of_a_stream_are_those_of_the_whole(served: Served, path: str) -> None:
    _, whole = served.ask(path, PATHS[path] | ASKED)
    (choice,) = whole["choices"]
    steps = choice["draft_steps"]
    assert "".join(token for step in steps for token in step["tokens"]) == text_of(choice)
    assert sum(len(step["token_ids"]) for step in steps) == whole["usage"]["completion_tokens"] == 40
    told = whole["metrics"]["speculative_decoding"]
    assert sum(len(step["draft_token_ids"]) for step in steps) == told["num_draft_tokens"]
    assert sum(len(step["accepted"]) for step in steps) == told["num_accepted_draft_tokens"] > 0
    assert {step["proposer"] for step in steps} == {"ngram", None}
    times = [step["time"] for step in steps]
    assert times == sorted(times)

    streamed = pieces(served, path, ASKED)
    assert "".join(map(text_of, streamed)) == text_of(choice)
    names = ("token_ids", "tokens", "parents", "draft_tokens", "accepted")
    found = steps_of(streamed)
    assert all(step["token_ids"] for step in found), "every step is told once"
    assert sum(len(step["token_ids"]) for step in found) == 40
    times = [step["time"] for step in found]
    assert times == sorted(set(times))
    # What the prefix cache holds of the first request may shift where a draft begins, never what is said.
    assert "".join(token for step in found for token in step["tokens"]) == text_of(choice)
    assert all(set(names) <= set(step) for step in found)
    seen = spelled = ""
    for piece in streamed:  # steps come no later than the text that they made
        seen += text_of(piece)
        spelled += (
            "".join(token for step in piece["draft_steps"] for token in step["tokens"])
            if "draft_steps" in piece
            else ""
        )
        assert spelled.startswith(seen)


def test_accepted_tokens_are_spelled_as_in_the_text(served: Served) -> None:
    _, whole = served.ask("/v1/completions", PATHS["/v1/completions"] | ASKED)
    steps = [step for step in whole["choices"][0]["draft_steps"] if step["accepted"]]
    assert steps
    for step in steps:
        path = [step["draft_tokens"][node] for node in step["accepted"]]
        assert path == step["tokens"][: len(path)]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("asked", [{}, {"return_draft_steps": False}])
def test_unasked_nothing_is_told(served: Served, path: str, asked: dict[str, Any]) -> None:
    body = PATHS[path] | {"temperature": 0, "max_tokens": 4} | asked
    assert "draft_steps" not in served.ask(path, body)[1]["choices"][0]
    assert all("draft_steps" not in choice for choice in pieces(served, path, body))


def test_every_sample_has_steps_and_those_without_drafts_are_empty(served: Served) -> None:
    body = PATHS["/v1/completions"] | ASKED | {"n": 2, "temperature": 0.8, "seed": 1, "speculative": False}
    _, whole = served.ask("/v1/completions", body)
    for choice in whole["choices"]:
        assert "".join(token for step in choice["draft_steps"] for token in step["tokens"]) == choice["text"]
        assert {(step["proposer"], len(step["token_ids"])) for step in choice["draft_steps"]} == {(None, 1)}


def test_responses_have_no_steps(served: Served) -> None:
    status, message = served.error("/v1/responses", {"input": "def main(", "return_draft_steps": True})
    assert status == 400
    assert "return_draft_steps" in message
