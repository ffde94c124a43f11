"""The page in Chromium, as a person uses it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PROMPT = "import os\nimport sys\n\n\ndef read_lines(path):\n"


@dataclass
class Person:
    """Somebody in front of the page."""

    page: Any
    """Playwright's page."""
    complaints: list[str]
    """What the browser said of mistakes and of what the security policy forbids."""

    def settings(self, **values: object) -> None:
        """Fill in fields of the settings, or tick boxes."""
        for name, value in values.items():
            field = self.page.locator(f"#settings [name={name}]")
            if isinstance(value, bool):
                field.set_checked(value)
            else:
                field.fill(str(value))

    def ask(self, text: str = PROMPT) -> None:
        """Type a message and send it with Enter."""
        self.page.fill("#message", text)
        self.page.press("#message", "Enter")

    def wait(self) -> None:
        """Wait until nothing is written any more; the page is busy as soon as a message is sent."""
        self.until("document.getElementById('turns').ariaBusy === 'false'")

    def until(self, expression: str, seconds: float = 60.0) -> None:
        """Wait until an expression is true; Playwright's own way needs `eval`, which the page forbids."""
        deadline = time.monotonic() + seconds
        while not self.page.evaluate(expression):
            assert time.monotonic() < deadline, expression
            self.page.wait_for_timeout(10)

    def compare(self) -> None:
        """Run the last message again without drafts."""
        self.page.click(".turn:last-child .compare")
        self.wait()

    def texts(self) -> list[str]:
        """Return the answers as they are shown without formatting; they are formatted again afterwards."""
        is_formatted = self.page.is_checked("[name=formatted]")
        self.settings(formatted=False)
        shown = self.page.locator(".run .text").evaluate_all("all => all.map(e => e.textContent)")
        self.settings(formatted=is_formatted)
        return [str(text) for text in shown]

    def turns(self) -> list[dict[str, Any]]:
        """Return what the page keeps."""
        kept: list[dict[str, Any]] = json.loads(
            self.page.evaluate("sessionStorage.getItem('specdec.turns')") or "[]"
        )
        return kept


def stream_of(tokens: list[str], drafted: frozenset[int] = frozenset(), reasoning: str = "") -> str:
    """Return the events of a chat completion.

    Args:
        tokens: the texts of its tokens; each comes in a piece of its own.
        drafted: which of them were drafted, each alone in a step.
        reasoning: what a token before them says as reasoning.
    """
    pieces: list[dict[str, Any]] = [{"delta": {"role": "assistant", "content": ""}}]
    if reasoning:
        pieces.append(
            {"delta": {"reasoning_content": reasoning}, "draft_steps": [_step(0, reasoning, False)]}
        )
    for number, token in enumerate(tokens, start=1):
        step = _step(number, token, number - 1 in drafted)
        pieces.append({"delta": {"content": token}, "draft_steps": [step]})
    pieces.append({"delta": {}, "finish_reason": "stop"})
    events = [json.dumps({"choices": [piece]}) for piece in pieces]
    return "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"])


@contextmanager
def slow_server(page: Any) -> Iterator[None]:
    """Let a page's conversations be answered by a server that writes fifty tokens a second, as many as are asked for."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            drafted = frozenset(range(0, 900, 3)) if body.get("speculative") is not False else frozenset()
            tokens = [f" w{number}" for number in range(body["max_tokens"])]
            for event in stream_of(tokens, drafted).split("\n\n"):
                try:
                    self.wfile.write(f"{event}\n\n".encode())
                    self.wfile.flush()
                except OSError:  # the page has stopped it
                    return
                time.sleep(0.02)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    address = f"http://127.0.0.1:{server.server_address[1]}/"
    page.route("**/v1/chat/completions", lambda route: route.continue_(url=address))
    try:
        yield
    finally:
        page.unroute("**/v1/chat/completions")
        server.shutdown()
        thread.join()
        server.server_close()


def _step(number: int, token: str, is_drafted: bool) -> dict[str, Any]:
    draft = [number] if is_drafted else []
    return {
        "proposer": "ngram" if is_drafted else None, "draft_token_ids": draft, "draft_tokens": [token] * len(draft),
        "parents": [-1] * len(draft), "accepted": [0] * len(draft), "token_ids": [number], "tokens": [token],
        "time": number / 100,
    }  # fmt: skip


@contextmanager
def chromium() -> Iterator[Any]:
    """Start the browser that `CHROMIUM` names."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("CHROMIUM", "chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def person(browser: Any, url: str, **context_options: Any) -> Iterator[Person]:
    """Open the page in a fresh profile."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}} | context_options)
    page = context.new_page()
    found = Person(page, [])
    page.on("console", lambda said: found.complaints.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: found.complaints.append(str(error)))
    page.goto(url)
    yield found
    context.close()


def axe_source() -> str:
    """Return the script of axe-core, which `AXE` names."""
    return Path(os.environ["AXE"]).read_text(encoding="utf-8")
