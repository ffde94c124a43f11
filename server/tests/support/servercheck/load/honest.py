"""Honest clients: seeded requests whose texts are known from an idle server."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from openai import APIError, OpenAI

_PROMPTS = ("def main(", "The first thing to do is", "import os\n", "Once upon a time", "class Queue:\n")


def requests() -> list[dict[str, Any]]:
    """Return requests of every kind: with and without a temperature, whole and streamed, texts and conversations."""
    found = []
    for place, prompt in enumerate(_PROMPTS):
        sampling = {"temperature": 0.0} if place % 2 else {"temperature": 0.8, "seed": 7 + place}
        for is_streaming in (False, True):
            found.append(
                {"prompt": prompt, "max_tokens": 24, "stream": is_streaming, "stop": "zzz", **sampling}
            )
            messages = [{"role": "user", "content": prompt}]
            found.append({"messages": messages, "max_tokens": 24, "stream": is_streaming, **sampling})
    return found


def text_of(client: OpenAI, request: dict[str, Any]) -> str:
    """Return the text of a response."""
    model = client.models.list().data[0].id
    if "prompt" in request:
        answer = client.completions.create(model=model, **request)
        return "".join(c.choices[0].text for c in answer) if request["stream"] else answer.choices[0].text
    answer = client.chat.completions.create(model=model, **request)
    if request["stream"]:
        return "".join(chunk.choices[0].delta.content or "" for chunk in answer)
    return answer.choices[0].message.content or ""


@dataclass
class Seen:
    """What honest clients saw."""

    num_right: int = 0
    wrong: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Errors that a client may answer by sending the request again."""
    seconds: list[float] = field(default_factory=list)


def ask(url: str, key: str, expected: list[str], place: int, seconds: float) -> Seen:
    """Send honest requests one after the other for some time, and compare the texts.

    Args:
        url: of the server.
        key: of these clients.
        expected: the text of each request on an idle server.
        place: where in the list to start.
        seconds: how long.
    """
    seen, until, sent = Seen(), time.monotonic() + seconds, requests()
    with OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=120) as client:
        while time.monotonic() < until:
            place = (place + 1) % len(sent)
            begun = time.monotonic()
            try:
                text = text_of(client, sent[place])
            except APIError as error:
                (seen.refused if getattr(error, "status_code", 0) in (429, 503) else seen.wrong).append(
                    repr(error)
                )
                time.sleep(0.2)
                continue
            seen.seconds.append(time.monotonic() - begun)
            if text == expected[place]:
                seen.num_right += 1
            else:
                seen.wrong.append(f"{sent[place]}: {text!r} instead of {expected[place]!r}")
    return seen
