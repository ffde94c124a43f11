"""Code is copied, the last answer generated anew, the last message edited."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from servercheck.browser import PROMPT, Person, person, stream_of
from servercheck.served import Served

pytestmark = pytest.mark.browser

CODE = "for i in range(3):\n    print(i)\n"
ANSWER = ["So", ":\n", "```python\n", *CODE.splitlines(keepends=True), "```\n", "Done."]


@pytest.fixture
def someone(browser: Any, served: Served) -> Iterator[Person]:
    with person(browser, served.url, permissions=["clipboard-read", "clipboard-write"]) as found:
        found.page.wait_for_selector("#served b")
        found.settings(maxTokens=40, seed=7, temperature=0.5)
        yield found
        assert found.complaints == []


def bodies(someone: Person) -> list[dict[str, Any]]:
    """Return a list that grows by what the page asks of the server."""
    asked: list[dict[str, Any]] = []
    someone.page.on(
        "request", lambda request: asked.append(request.post_data_json) if request.method == "POST" else None
    )
    return asked


def answering(someone: Person, *tokens: str) -> None:
    """Let the next conversations be answered with these tokens."""
    someone.page.unroute("**/v1/chat/completions")
    events = stream_of(list(tokens))
    someone.page.route("**/v1/chat/completions", lambda route: route.fulfill(status=200, body=events))


@pytest.mark.parametrize("has_clipboard", [True, False])
def test_code_is_copied_as_it_is(someone: Person, has_clipboard: bool) -> None:
    page = someone.page
    if not has_clipboard:  # as for pages of other machines without TLS
        page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined, configurable: true})")
    answering(someone, *ANSWER)
    someone.ask(f"Look:\n```\n{PROMPT}```\nWell?")
    someone.wait()
    for button, text in ((".said .copy", CODE), (".prompt .copy", PROMPT)):
        page.click(button)
        someone.until(f"document.querySelector('{button}').textContent === 'Copied'")
        assert page.text_content("#status") == "Copied"
        if not has_clipboard:
            page.evaluate("delete navigator.clipboard")
        assert page.evaluate("navigator.clipboard.readText()").rstrip("\n") == text.rstrip("\n")
        if not has_clipboard:
            page.evaluate(
                "Object.defineProperty(navigator, 'clipboard', {value: undefined, configurable: true})"
            )


def test_the_last_answer_is_generated_anew(someone: Person) -> None:
    page, asked = someone.page, bodies(someone)
    for tokens in (["One", "."], ["Two", "."]):
        answering(someone, *tokens)
        someone.ask("Say a number")
        someone.wait()
    someone.compare()
    assert page.locator(".regenerate:visible").count() == page.locator(".edit-message:visible").count() == 1
    answering(someone, "Three", ".")
    someone.settings(seed=8)
    page.click(".turn:last-child .regenerate")
    someone.wait()
    assert someone.texts() == ["One.", "Three."], "and the comparison is gone"
    assert asked[-1]["messages"] == asked[1]["messages"]
    assert (asked[1]["seed"], asked[-1]["seed"]) == (7, 8)
    assert [turn["prompt"] for turn in someone.turns()] == ["Say a number"] * 2
    assert page.locator(".turn:last-child .compare").is_visible()
    page.reload()
    page.wait_for_selector("#served b")
    assert someone.texts() == ["One.", "Three."]
    assert page.locator(".regenerate:visible").count() == 1


def test_an_answer_stays_where_another_one_fails(someone: Person) -> None:
    page = someone.page
    answering(someone, "One", ".")
    someone.ask("Say a number")
    someone.wait()
    page.unroute("**/v1/chat/completions")
    page.route(
        "**/v1/chat/completions",
        lambda route: route.fulfill(status=200, body='data: {"error":{"message":"gone"}}\n\n'),
    )
    page.click(".regenerate")
    someone.wait()
    someone.until("document.getElementById('error').textContent === 'Gone.'")
    assert someone.texts() == ["One."]
    assert [turn["run"]["steps"] != [] for turn in someone.turns()] == [True]


def test_the_last_message_is_edited(someone: Person) -> None:
    page, asked = someone.page, bodies(someone)
    answering(someone, "One", ".")
    someone.ask("Say a numbr")
    someone.wait()
    page.click(".edit-message")
    assert page.input_value(".edit textarea") == "Say a numbr"
    page.keyboard.press("Escape")
    assert page.inner_text(".prompt") == "Say a numbr"
    assert len(asked) == 1
    answering(someone, "Two", ".")
    page.click(".edit-message")
    page.fill(".edit textarea", "Say a number")
    page.press(".edit textarea", "Enter")
    someone.wait()
    assert page.evaluate("document.activeElement.id") == "message"
    assert page.locator(".edit").count() == 0
    assert page.inner_text(".prompt") == "Say a number"
    assert someone.texts() == ["Two."]
    assert [message["content"] for message in asked[-1]["messages"]] == ["Say a number"]


def test_nothing_is_offered_while_an_answer_is_written(someone: Person, served: Served) -> None:
    page = someone.page
    someone.settings(maxTokens=900)
    someone.ask()
    someone.until("document.querySelectorAll('.run .token').length > 5")
    assert page.locator(".actions:visible").count() == 0
    page.click("#stop")
    someone.wait()
    assert page.locator(".actions:visible").count() == 1


def test_why_an_answer_ended_is_told(someone: Person) -> None:
    events = stream_of(["One"]).replace(
        '"finish_reason": "stop"', '"finish_reason": "error", "stop_reason": "too dear"'
    )
    assert (
        json.loads(events.split("\n\n")[-3].removeprefix("data: "))["choices"][0]["stop_reason"] == "too dear"
    )
    someone.page.route("**/v1/chat/completions", lambda route: route.fulfill(status=200, body=events))
    someone.ask()
    someone.wait()
    assert "too dear" in someone.page.inner_text(".meta")
