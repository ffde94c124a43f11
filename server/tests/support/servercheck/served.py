"""A server on a thread, and plain HTTP to it."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from specdec import AsyncLLM
from specdec_server import Settings, create_app
from specdec_server.connection import limited_by

TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@dataclass(frozen=True)
class Served:
    """A server that runs."""

    url: str
    llm: AsyncLLM
    app: FastAPI

    def ask(self, path: str, body: object = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """Return the status and the body of an answer; a body that is no JSON as text."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/json"} | (headers or {})
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                status, text = answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                status, text = error.code, error.read().decode()
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text

    def error(self, path: str, body: object, headers: dict[str, str] | None = None) -> tuple[int, str]:
        """Return the status and the message of an answer that is an error."""
        status, answer = self.ask(path, body, headers)
        return status, answer["error"]["message"]

    def events(self, path: str, body: object) -> list[str]:
        """Return the data of every event of a stream."""
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines = answer.read().decode().split("\n\n")
        assert lines.pop() == ""
        assert all(line.startswith("data: ") for line in lines)
        return [line.removeprefix("data: ") for line in lines]

    def counters(self) -> dict[str, float]:
        """Return what `/metrics` says: names and labels as they are there, and values."""
        _, text = self.ask("/metrics")
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


@contextmanager
def serving(
    settings: Settings, model: Any = "zoo", *, template: str | None = TEMPLATE, **arguments: Any
) -> Iterator[Served]:
    """Serve a target, by default the zoo's, at a free port, with a chat template other than its own."""
    llm = AsyncLLM(model, dtype="float32", **arguments)
    tokenizer = llm.get_tokenizer()
    assert tokenizer is not None
    tokenizer.chat_template = template or tokenizer.chat_template
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    app = create_app(llm, settings)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", http=limited_by(settings.limits)))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while not server.started:
            assert thread.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield Served(f"http://127.0.0.1:{listener.getsockname()[1]}", llm, app)
    finally:
        server.should_exit = True
        thread.join()


def address(log: Path, server: subprocess.Popen[str], what: str = "") -> str:
    """Return where a server listens, once its log says so behind `what`."""
    while server.poll() is None:
        if found := re.search(rf"{what}(http://[\d.]+:\d+)", log.read_text()):
            return found[1]
        time.sleep(0.1)
    raise AssertionError(log.read_text())
