"""How the page looks in Chromium: on a phone, at several widths, to readers; and the reference at `/docs`."""

from __future__ import annotations

from typing import Any

import pytest
from servercheck.browser import axe_source, person, stream_of
from servercheck.served import Served

from specdec_server.openapi.document import GROUPS

pytestmark = pytest.mark.browser
MARKDOWN = ["# Title", "\n\n", "A [link](https://a.b)", " and `code`\n\n", "- one\n- **two**\n\n", "> quote\n\n```py\nx = 1",
            "\n```\n\n|a|b|\n|-|-|\n|1|2|\n"]  # fmt: skip
WCAG = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


def test_on_a_phone_the_message_stays_and_the_panel_is_folded(browser: Any, served: Served) -> None:
    size = {"width": 375, "height": 667}
    with person(browser, served.url, viewport=size, has_touch=True, is_mobile=True) as someone:
        page = someone.page
        page.wait_for_selector("#served b")
        assert page.locator("header").bounding_box()["height"] < 60, "one line"
        for _ in range(3):
            someone.ask()
            someone.wait()
        for name in ("#message", "#send"):
            box = page.locator(name).bounding_box()
            assert box["y"] + box["height"] <= size["height"], name
        assert page.evaluate("document.documentElement.scrollHeight") <= size["height"]
        assert page.locator("#panel").is_hidden()
        assert "tokens/s" in page.inner_text("#fold")
        page.locator(".text .token.drafted").last.tap()
        assert "drafted" in page.inner_text("#fold"), "what its step drafted"
        page.tap("#fold")
        assert page.locator("#step .node").count() > 0
        assert page.locator("#panel").is_visible()
        assert page.locator("#message").is_visible()
        assert page.locator(".turn").first.is_hidden()
        page.tap("#fold")
        assert page.locator("#panel").is_hidden()


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
        someone.compare()
        page.locator(".token.drafted").first.hover()
        page.evaluate(  # every colour and shade, whether this model shows it or not
            """() => { for (let c = 0; c < 5; c++) for (let d = 1; d <= 6; d++) { const e = document.createElement('span');
            e.className = `token drafted colour-${c} depth-${d}`; e.textContent = 'word';
            document.querySelector('.run .text').append(e); } }"""
        )
        check("with an answer")
        events = stream_of(MARKDOWN, reasoning="so")
        page.route("**/v1/chat/completions", lambda route: route.fulfill(status=200, body=events))
        someone.ask()
        someone.wait()
        check("with a formatted answer")
        page.set_viewport_size({"width": 375, "height": 700})
        check("on a phone")
        page.click("#fold")
        check("on a phone, unfolded")
        page.set_viewport_size({"width": 1280, "height": 800})
        page.unroute("**/v1/chat/completions")
        someone.ask("word " * 3000)
        page.wait_for_selector("#error:not([hidden])")
        check("with an error")


@pytest.mark.parametrize("width", [360, 800, 1280])
def test_nothing_sticks_out(browser: Any, served: Served, width: int) -> None:
    with person(browser, served.url, viewport={"width": width, "height": 700}) as someone:
        page = someone.page
        page.wait_for_selector("#served b")
        wide = ["`", "x" * 500, "`\n\n", "y" * 500, "\n\n|", " a " * 90, "|b|\n|-|-|\n|", "c" * 300, "|d|\n"]
        page.route("**/v1/chat/completions", lambda route: route.fulfill(status=200, body=stream_of(wide)))
        someone.ask("z" * 500)
        someone.wait()
        assert page.locator(".said td").count() == 2
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        inside = "[...document.querySelectorAll('.run, .prompt')].map(e => e.getBoundingClientRect())"
        assert page.evaluate(f"{inside}.every(box => box.left >= 0 && box.right <= {width})")


def test_the_reference_lists_all_and_tries_it_out_offline(browser: Any, served: Served) -> None:
    with person(browser, f"{served.url}/docs") as someone:
        page = someone.page
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.reload()
        page.wait_for_selector(".opblock")
        groups = page.locator(".opblock-tag").evaluate_all("all => all.map(e => e.dataset.tag)")
        assert groups == [group["name"] for group in GROUPS]
        paths = page.locator(".opblock-summary-path").evaluate_all("all => all.map(e => e.dataset.path)")
        assert set(paths) >= {"/v1/chat/completions", "/v1/completions", "/server_info", "/health"}
        page.click(".opblock:has([data-path='/version']) .opblock-summary-control")
        page.click("text=Try it out")
        page.click("button.execute")
        page.wait_for_selector(".live-responses-table >> text=0.1.0")
        assert all(url.startswith((served.url, "data:", "blob:")) for url in asked)
        assert someone.complaints == []
