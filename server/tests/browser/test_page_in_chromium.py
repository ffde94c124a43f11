"""The page at `/` and the reference at `/docs` in Chromium: `make test-browser`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from servercheck.browser import PROMPT, Person, person, slow_server, stream_of
from servercheck.served import Served, serving

from specdec_server import Settings

pytestmark = pytest.mark.browser


@pytest.fixture
def someone(browser: Any, served: Served) -> Iterator[Person]:
    with person(browser, served.url) as found:
        found.page.wait_for_selector("#served b")
        found.settings(maxTokens=60, seed=7, temperature=0.5)
        yield found
        assert found.complaints == []


def said_by_the_server(served: Served, content: str, seed: int = 7) -> str:
    body = {
        "messages": [{"role": "user", "content": content}], "max_tokens": 60, "seed": seed, "temperature": 0.5,
        "speculative": False,
    }  # fmt: skip
    return str(served.ask("/v1/chat/completions", body)[1]["choices"][0]["message"]["content"])


def test_an_answer_is_coloured_and_equals_that_without_drafts(someone: Person, served: Served) -> None:
    page = someone.page
    someone.ask()
    someone.wait()
    assert someone.texts() == [said_by_the_server(served, PROMPT)]
    someone.compare()
    assert someone.texts() == [said_by_the_server(served, PROMPT)] * 2
    assert page.locator(".compare").is_hidden()
    (turn,) = someone.turns()
    steps = turn["run"]["steps"]
    accepted = [token for step in steps for token in step["tokens"][: len(step["accepted"])]]
    someone.settings(formatted=False)
    coloured = page.locator(".run:first-child .token.drafted")
    places = coloured.evaluate_all("all => [...new Set(all.map(e => e.dataset.place))]")
    shown = [
        "".join(page.locator(f".run:first-child [data-place='{place}']").all_text_contents())
        for place in places
    ]
    assert [token for token in accepted if token.strip()] == shown
    assert len(shown) > 5
    assert page.locator(".run:last-child .token.drafted").count() == 0
    deep = page.locator(".run:first-child .token.depth-2")
    assert (
        0
        < len(deep.evaluate_all("all => [...new Set(all.map(e => e.dataset.place))]"))
        <= sum(len(step["accepted"]) >= 2 for step in steps)
    )
    panel = page.inner_text("#speed")
    assert "Equal: the same 60 tokens" in panel
    assert len(re.findall(r"[\d.]+\s+tokens/s", panel)) == 2
    assert "speed-up" in panel
    drafts = [step for step in steps if step["draft_token_ids"]]
    shares = page.locator("#positions tbody tr td:last-child").all_inner_texts()
    first = sum(len(step["accepted"]) >= 1 for step in drafts) / len(drafts)
    assert abs(int(shares[0].split()[0]) - 100 * first) <= 0.5
    assert "ngram" in page.inner_text(".proposers")


def test_pointing_at_a_token_shows_what_its_step_drafted(someone: Person) -> None:
    someone.ask()
    someone.wait()
    (turn,) = someone.turns()
    token = someone.page.locator(".token.depth-2").first
    token.hover()
    number = int(re.findall(r"Step (\d+) of", someone.page.inner_text("#step-title"))[0])
    step = turn["run"]["steps"][number - 1]
    nodes = someone.page.locator("#step .node .token").all_inner_texts()
    assert len(nodes) == len(step["draft_token_ids"]) + len(step["tokens"]) - len(step["accepted"])
    assert someone.page.locator("#step .node .token.drafted").count() == len(step["accepted"]) >= 2
    assert someone.page.locator("#step .node .rejected").count() == len(step["draft_token_ids"]) - len(
        step["accepted"]
    )
    someone.page.click("#next-step")
    assert f"Step {number + 1} of" in someone.page.inner_text("#step-title")


def test_a_speed_up_is_told_over_equal_lengths_only(someone: Person) -> None:
    page = someone.page
    with slow_server(page):
        someone.settings(maxTokens=900)
        someone.ask()
        someone.until("document.querySelectorAll('.run .token').length > 40")
        page.click("#stop")
        someone.wait()
        assert "speed-up" not in page.inner_text("#speed")
        someone.compare()  # as many tokens as had come
        (turn,) = someone.turns()
        stopped, plain = (
            [i for step in turn[name]["steps"] for i in step["token_ids"]] for name in ("run", "plain")
        )
        assert stopped == plain
        assert f"Equal: the same {len(stopped)} tokens" in page.inner_text("#speed")
        assert re.search(r"speed-up\s+[\d.]+", page.inner_text("#speed"))

        someone.settings(maxTokens=300)
        someone.ask()
        someone.wait()
        page.click(".turn:last-child .compare")
        someone.until("document.querySelectorAll('.turn:last-child .run:last-child .token').length > 20")
        page.click("#stop")
        someone.wait()
        told = page.inner_text("#speed")
        assert "No speed-up: the answers are of different lengths." in told
        assert not re.search(r"speed-up\s+[\d.]+", told)
        assert "Equal as far as both go" in told


def test_the_first_suggestion_is_an_edit_that_pays(browser: Any) -> None:
    settings = Settings(model_names=("smollm2",), log_every_s=0.0)
    config = {"method": "ngram", "num_speculative_tokens": 5}
    with (
        serving(settings, "smollm2", template=None, speculative_config=config) as served,
        person(browser, served.url) as someone,
    ):
        page = someone.page
        page.wait_for_selector("#served b")
        someone.settings(temperature=0)
        page.locator(".examples button").first.click()
        someone.wait()
        assert page.locator(".prompt pre").count() == page.locator(".said pre").count() == 1
        steps = someone.turns()[0]["run"]["steps"]
        tokens = sum(len(step["token_ids"]) for step in steps)
        assert tokens > 40
        assert tokens / len(steps) > 2, "tokens a step"


def test_stop_keeps_what_has_come_and_a_reload_keeps_the_conversation(someone: Person) -> None:
    page = someone.page
    someone.settings(maxTokens=900, system="Write code.")
    with slow_server(page):
        someone.ask()
        someone.until("document.querySelectorAll('.run .token').length > 20")
        page.click("#stop")  # which is there while it is written alone: an answer is shown before it ends
        someone.wait()
    (text,) = someone.texts()
    assert text
    assert "stopped" in page.inner_text(".meta")
    assert page.is_hidden("#stop")

    page.reload()
    page.wait_for_selector("#served b")
    assert someone.texts() == [text]
    assert page.input_value("[name=system]") == "Write code."
    asked: list[dict[str, Any]] = []
    page.on(
        "request", lambda request: asked.append(request.post_data_json) if request.method == "POST" else None
    )
    someone.settings(maxTokens=8)
    someone.ask("def main(")
    someone.wait()
    (body,) = asked
    assert body["messages"] == [
        {"role": "system", "content": "Write code."},
        {"role": "user", "content": PROMPT},
        {"role": "assistant", "content": text},
        {"role": "user", "content": "def main("},
    ]
    page.click("#clear")
    assert someone.texts() == someone.turns() == []
    assert page.is_visible("#empty")


def test_a_reload_in_the_middle_keeps_what_has_come(someone: Person) -> None:
    someone.settings(maxTokens=900)
    with slow_server(someone.page):
        someone.ask()
        someone.until("document.querySelectorAll('.run .token').length > 20")
        someone.page.reload()
    (text,) = someone.texts()
    assert text
    assert "stopped" in someone.page.inner_text(".meta")


def test_speculation_can_be_turned_off(someone: Person, served: Served) -> None:
    someone.settings(speculation=False)
    someone.ask()
    someone.wait()
    assert someone.texts() == [said_by_the_server(served, PROMPT)]
    assert someone.page.locator(".compare").is_hidden()
    assert someone.page.locator(".token.drafted").count() == 0
    assert "without drafts" in someone.page.inner_text("#speed")


def test_the_keyboard_alone_does_everything(someone: Person) -> None:
    page = someone.page
    focused = "document.activeElement.id || document.activeElement.name || document.activeElement.className"
    page.reload()  # the settings are kept, the focus is not
    page.wait_for_selector("#served b")
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "skip"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab") if page.evaluate(focused) != "message" else None
    assert page.evaluate(focused) == "message"
    page.keyboard.type("def main(")
    page.keyboard.press("Enter")
    someone.wait()
    assert page.evaluate(focused) == "message"
    page.keyboard.press("Shift+Tab")
    assert page.evaluate(focused) == "compare"
    page.keyboard.press("Enter")
    someone.wait()
    page.focus("#message")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate(focused) == "text", "the last answer comes before the message"
    page.keyboard.press("ArrowRight")
    assert page.locator(".text .cursor").count() == 1
    page.keyboard.press("End")
    last = page.locator(".run:last-child .token").last
    assert "cursor" in last.get_attribute("class")
    steps = someone.turns()[0]["plain"]["steps"]
    page.keyboard.press("ArrowUp")
    assert page.inner_text("#step-title") == f"Step {len(steps) - 1} of {len(steps)}"
    assert "own" in page.text_content("#status")
    for wanted in ("message", "send", "previous-step", "next-step"):
        for _ in range(4):
            page.keyboard.press("Tab")
            if page.evaluate(focused) == wanted:
                break
        assert page.evaluate(focused) == wanted
    while page.evaluate(focused) != "speculation":
        page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert not page.is_checked("[name=speculation]")
    someone.settings(maxTokens=900)
    with slow_server(page):
        page.focus("#message")
        page.keyboard.type("import os\n")
        someone.until("document.querySelectorAll('.turn:last-child .token').length > 5")
        page.keyboard.press("Escape")
        someone.wait()
    assert "stopped" in page.locator(".meta").last.inner_text()


def test_screen_readers_are_told_the_beginning_and_the_end_alone(someone: Person) -> None:
    someone.page.evaluate(
        """() => { window.told = []; new MutationObserver(() => told.push(document.getElementById('status').textContent))
        .observe(document.getElementById('status'), {childList: true}) }"""
    )
    someone.ask()
    someone.wait()
    begun, ended = someone.page.evaluate("told")
    assert begun == "The answer begins"
    assert ended.startswith("Answer of 60 tokens, ")
    assert someone.texts()[0] in ended


def test_errors_are_told_in_words(browser: Any, served: Served) -> None:
    with person(browser, served.url) as someone:
        page = someone.page
        page.wait_for_selector("#served b")
        someone.ask("word " * 3000)
        page.wait_for_selector("#error:not([hidden])")
        assert "max_model_len" in page.inner_text("#error")
        assert page.input_value("#message").startswith("word"), "the message is not lost"
        page.context.set_offline(True)
        someone.ask()
        someone.until("document.getElementById('error').textContent.includes('cannot be reached')")
        page.context.set_offline(False)
        busy = {"error": {"message": "9 requests wait already"}}
        page.route(
            "**/v1/chat/completions",
            lambda route: route.fulfill(status=429, headers={"Retry-After": "3"}, body=json.dumps(busy)),
        )
        someone.ask()
        someone.until("document.getElementById('error').textContent.includes('Try again in 3 s')")
        page.unroute("**/v1/chat/completions")
        someone.settings(maxTokens=8)
        someone.ask("def main(")
        someone.wait()
        page.route(
            "**/v1/chat/completions",
            lambda route: route.fulfill(status=503, body='{"error":{"message":"gone"}}'),
        )
        someone.compare()
        assert page.inner_text("#error") == "Gone."
        assert page.locator(".run").count() == 1
        assert page.locator(".compare").is_visible(), "it can be tried again"
        half = 'data: {"choices":[{"delta":{"content":"x"}}]}\n\ndata: {"error":{"message":"it broke"}}\n\n'
        page.unroute("**/v1/chat/completions")
        page.route("**/v1/chat/completions", lambda route: route.fulfill(status=200, body=half))
        someone.ask()
        someone.until("document.getElementById('error').textContent === 'It broke.'")


def test_a_key_is_asked_for(browser: Any) -> None:
    settings = Settings(model_names=("zoo",), api_key="sesame", log_every_s=0.0)
    with serving(settings) as served, person(browser, served.url) as someone:
        page = someone.page
        page.wait_for_selector("#key-form:not([hidden])")
        page.fill("#key", "wrong")
        page.press("#key", "Enter")
        someone.until("document.getElementById('error').textContent.includes('does not know')")
        page.fill("#key", "sesame")
        page.press("#key", "Enter")
        page.wait_for_selector("#served b")
        assert page.is_hidden("#key-form")
        assert page.is_disabled("[name=speculation]"), "this server does not draft"
        someone.settings(maxTokens=8)
        someone.ask()
        someone.wait()
        assert someone.texts()[0]
        page.goto(f"{served.url}/docs")
        page.wait_for_selector(".opblock")
        page.evaluate("sessionStorage.clear()")
        page.reload()
        page.wait_for_selector("#key-form:not([hidden])")


def test_a_model_without_a_chat_template_goes_on_with_a_text(browser: Any, served: Served) -> None:
    with person(browser, "about:blank") as someone:
        page = someone.page
        info = served.ask("/server_info")[1] | {"has_chat_template": False}
        page.route("**/server_info", lambda route: route.fulfill(body=json.dumps(info)))
        page.goto(served.url)
        page.wait_for_selector("#served b")
        assert page.inner_text("#message-label") == "Text to continue"
        someone.settings(maxTokens=20, temperature=0, seed=1)
        someone.ask()
        someone.wait()
        body = {"prompt": PROMPT, "max_tokens": 20, "temperature": 0}
        text = served.ask("/v1/completions", body)[1]["choices"][0]["text"]
        assert page.locator(".run .text").text_content() == text, "a text is not formatted"
        assert page.locator("[name=formatted]").is_hidden()
        someone.compare()
        assert page.locator(".run .text").all_text_contents() == [text] * 2


def test_reasoning_is_shown_and_not_sent_again(browser: Any, served: Served) -> None:
    with person(browser, served.url) as someone:
        page = someone.page
        page.wait_for_selector("#served b")
        asked: list[dict[str, Any]] = []
        page.on(
            "request",
            lambda request: asked.append(request.post_data_json) if request.method == "POST" else None,
        )
        events = stream_of(["Yes", "."], reasoning="Hm, so")
        page.route("**/v1/chat/completions", lambda route: route.fulfill(status=200, body=events))
        for _ in range(2):
            someone.ask("Why?")
            someone.wait()
        assert someone.texts() == ["Hm, soYes."] * 2
        assert page.locator(".run .reasoning").all_inner_texts() == ["Hm, so"] * 2
        assert asked[1]["messages"][1] == {"role": "assistant", "content": "Yes."}
