"""The page at `/` and the reference at `/docs` in Chromium: `make test-browser`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from servercheck.browser import PROMPT, Person, axe_source, chromium, person
from servercheck.served import Served, serving

from specdec_server import Settings

pytestmark = pytest.mark.browser
WCAG = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


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


def test_an_answer_streams_is_coloured_and_equals_that_without_drafts(
    someone: Person, served: Served
) -> None:
    page = someone.page
    someone.ask()
    someone.until("document.querySelectorAll('.run .token').length > 2")
    assert page.is_visible("#stop"), "tokens are shown before the answer ends"
    someone.wait()
    assert someone.texts() == [said_by_the_server(served, PROMPT)] * 2
    (turn,) = someone.turns()
    steps = turn["run"]["steps"]
    accepted = [token for step in steps for token in step["tokens"][: len(step["accepted"])]]
    shown = page.locator(".run:first-child .token.drafted").evaluate_all("all => all.map(e => e.textContent)")
    assert [token for token in accepted if token] == shown
    assert len(shown) > 5
    assert page.locator(".run:last-child .token.drafted").count() == 0
    deep = page.locator(".run:first-child .token.depth-2").count()
    assert deep == sum(len(step["accepted"]) >= 2 for step in steps) > 0
    panel = page.inner_text("#speed")
    assert "Equal: the same 60 tokens" in panel
    assert len(re.findall(r"[\d.]+\s+tokens/s", panel)) == 2
    drafts = [step for step in steps if step["draft_token_ids"]]
    shares = page.locator("#positions tbody tr td:last-child").all_inner_texts()
    first = sum(len(step["accepted"]) >= 1 for step in drafts) / len(drafts)
    assert abs(int(shares[0].split()[0]) - 100 * first) <= 0.5
    assert "ngram" in page.inner_text(".proposers")


def test_pointing_at_a_token_shows_what_its_step_drafted(someone: Person) -> None:
    someone.settings(compare=False)
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


def test_stop_keeps_what_has_come_and_a_reload_keeps_the_conversation(someone: Person) -> None:
    page = someone.page
    someone.settings(maxTokens=900, system="Write code.")
    someone.ask()
    someone.until("document.querySelectorAll('.run .token').length > 20")
    page.click("#stop")
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
    someone.settings(maxTokens=8, compare=False)
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
    someone.ask()
    someone.until("document.querySelectorAll('.run .token').length > 20")
    someone.page.reload()
    (text,) = someone.texts()
    assert text
    assert "stopped" in someone.page.inner_text(".meta")


def test_speculation_can_be_turned_off(someone: Person, served: Served) -> None:
    someone.settings(speculation=False)
    assert someone.page.is_disabled("[name=compare]")
    someone.ask()
    someone.wait()
    assert someone.texts() == [said_by_the_server(served, PROMPT)]
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
    someone.settings(compare=False)
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
        assert someone.texts() == [served.ask("/v1/completions", body)[1]["choices"][0]["text"]] * 2


def test_reasoning_is_shown_and_not_sent_again(browser: Any, served: Served) -> None:
    step = {
        "proposer": None, "draft_token_ids": [], "draft_tokens": [], "parents": [], "accepted": [], "time": 0.5,
        "token_ids": [7, 9, 5, 6], "tokens": ["Hm, so", "<mark>", "Yes", "."],
    }  # fmt: skip
    told = [
        {"delta": {"role": "assistant", "content": ""}},
        {"delta": {"reasoning_content": "Hm, so"}, "draft_steps": [step]},
        {"delta": {"content": "Yes."}, "finish_reason": "stop"},
    ]
    events = "".join(f"data: {json.dumps({'choices': [choice]})}\n\n" for choice in told) + "data: [DONE]\n\n"
    with person(browser, served.url) as someone:
        page = someone.page
        page.wait_for_selector("#served b")
        asked: list[dict[str, Any]] = []
        page.on(
            "request",
            lambda request: asked.append(request.post_data_json) if request.method == "POST" else None,
        )
        page.route("**/v1/chat/completions", lambda route: route.fulfill(status=200, body=events))
        someone.settings(compare=False)
        for _ in range(2):
            someone.ask("Why?")
            someone.wait()
        assert someone.texts() == ["Hm, soYes."] * 2
        assert page.locator(".run .token.reasoning").all_inner_texts() == ["Hm, so"] * 2
        assert asked[1]["messages"][1] == {"role": "assistant", "content": "Yes."}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: Any, served: Served, scheme: str) -> None:
    source = axe_source()
    with person(browser, served.url, color_scheme=scheme) as someone:
        page = someone.page
        page.wait_for_selector("#served b")

        def check(state: str) -> None:
            page.evaluate(source)
            found = page.evaluate("options => axe.run(document, options)", WCAG)
            wrong = [
                (rule["id"], [node["html"] for node in rule["nodes"]][:3]) for rule in found["violations"]
            ]
            assert wrong == [], state

        check("empty")
        someone.settings(maxTokens=60, seed=7, temperature=0.5)
        someone.ask()
        someone.wait()
        page.locator(".token.drafted").first.hover()
        page.evaluate(  # every colour and shade, whether this model shows it or not
            """() => { for (let c = 0; c < 5; c++) for (let d = 1; d <= 6; d++) { const e = document.createElement('span');
            e.className = `token drafted colour-${c} depth-${d}`; e.textContent = 'word';
            document.querySelector('.run .text').append(e); } }"""
        )
        check("with an answer")
        someone.ask("word " * 3000)
        page.wait_for_selector("#error:not([hidden])")
        check("with an error")


@pytest.mark.parametrize("width", [360, 800, 1280])
def test_nothing_sticks_out(browser: Any, served: Served, width: int) -> None:
    with person(browser, served.url, viewport={"width": width, "height": 700}) as someone:
        someone.page.wait_for_selector("#served b")
        someone.settings(maxTokens=30)
        someone.ask()
        someone.wait()
        assert someone.page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_reference_lists_all_and_tries_it_out_offline(browser: Any, served: Served) -> None:
    with person(browser, f"{served.url}/docs") as someone:
        page = someone.page
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.reload()
        page.wait_for_selector(".opblock")
        paths = page.locator(".opblock-summary-path").evaluate_all("all => all.map(e => e.dataset.path)")
        assert set(paths) >= {"/v1/chat/completions", "/v1/completions", "/server_info", "/health"}
        page.click(".opblock:has([data-path='/version']) .opblock-summary-control")
        page.click("text=Try it out")
        page.click("button.execute")
        page.wait_for_selector("text=0.1.0")
        assert all(url.startswith((served.url, "data:", "blob:")) for url in asked)
        assert someone.complaints == []
