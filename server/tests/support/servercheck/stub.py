"""A server that pretends to have a model, and to speculate well or badly."""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

VOCAB = 12
SECOND_BEST_AT = 5
_TABLE = np.random.default_rng(7).normal(0, 1.5, (VOCAB, VOCAB, VOCAB))
for _first, _second in np.ndindex(VOCAB, VOCAB):
    if (_first + _second) % 6 == 0:  # here two tokens are all but equally probable
        _row = _TABLE[_first, _second]
        _row[np.argmax(_row) - 1] = _row.max() - 1e-5


@dataclass
class Stub:
    """How a server behaves. Each fault is one of speculation unless it says otherwise."""

    has_switch: bool = True
    is_speculative: bool = True
    has_metrics: bool = True
    has_ids: bool = True
    has_logprobs: bool = True
    is_chat_form: bool = False
    refuses: tuple[str, ...] = ()
    most_samples: int = 128
    takes_second_best: bool = False
    takes_second_best_in_batch: bool = False
    plain_takes_second_best_in_batch: bool = False
    rounding: float = 0.0
    temperature_factor: float = 1.0
    dies_after: int | None = None
    num_answers: int = 0
    drafted: int = 0
    num_active: int = 0
    num_asked: Counter[tuple[int, bool]] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the body of an answer."""
        is_on = self.is_speculative and not (self.has_switch and body.get("speculative") is False)
        with self.lock:
            self.num_active += 1
        if self.takes_second_best_in_batch or self.plain_takes_second_best_in_batch:
            time.sleep(0.05)  # so that others arrive meanwhile
        with self.lock:
            is_batch = self.num_active > 1
            count = min(body.get("n", 1), self.most_samples)
            prompt = zlib.crc32(json.dumps(body["prompt"]).encode())
            self.num_asked[prompt, is_on] += 1
            # Draws that do not depend on the order in which different prompts arrive.
            rng = np.random.default_rng([prompt, is_on, self.num_asked[prompt, is_on]])
            choices = [
                self._choice(body, prompt, index, rng, is_on=is_on, is_batch=is_batch)
                for index in range(count)
            ]
            if is_on:
                self.drafted += sum(len(choice["text"].split()) for choice in choices)
        with self.lock:
            self.num_active -= 1
        return {"choices": choices}

    def _choice(
        self,
        body: dict[str, Any],
        prompt: int,
        index: int,
        rng: np.random.Generator,
        *,
        is_on: bool,
        is_batch: bool,
    ) -> dict[str, Any]:
        context = [prompt % VOCAB, prompt // VOCAB % VOCAB]
        temperature = body.get("temperature", 1.0) * (self.temperature_factor if is_on else 1.0)
        rows: list[tuple[int, np.ndarray]] = []
        for place in range(body["max_tokens"]):
            logits = _TABLE[context[-2], context[-1]].copy()
            if is_on and self.rounding:
                logits += np.random.default_rng([*context[-2:], place]).normal(0, self.rounding, VOCAB)
            logprobs = logits - np.log(np.exp(logits).sum())
            if temperature:
                token = int(np.argmax(logits / temperature + rng.gumbel(size=VOCAB)))
            else:
                second = (
                    (is_on and self.takes_second_best)
                    or (is_on and is_batch and self.takes_second_best_in_batch)
                    or (is_batch and self.plain_takes_second_best_in_batch)
                )
                token = int(np.argsort(-logits)[int(second and place == SECOND_BEST_AT)])
            rows.append((token, logprobs))
            context.append(token)
        return {"index": index, "finish_reason": "length", **self._told(body, rows)}

    def _told(self, body: dict[str, Any], rows: list[tuple[int, np.ndarray]]) -> dict[str, Any]:
        texts = [f" t{token}" for token, _ in rows]
        told: dict[str, Any] = {"text": "".join(texts), "logprobs": None}
        if self.has_ids and body.get("return_token_ids"):
            told["token_ids"] = [token for token, _ in rows]
        if self.has_logprobs and (count := body.get("logprobs")):
            values = [float(row[token]) for token, row in rows]
            tops = [{f" t{i}": float(row[i]) for i in np.argsort(-row)[:count]} for _, row in rows]
            told["logprobs"] = {"tokens": texts, "token_logprobs": values, "top_logprobs": tops}
            if self.is_chat_form:
                told["logprobs"] = {
                    "content": [
                        {
                            "token": text,
                            "logprob": value,
                            "top_logprobs": [{"token": t, "logprob": v} for t, v in top.items()],
                        }
                        for text, value, top in zip(texts, values, tops, strict=True)
                    ]
                }
        return told

    def metrics(self) -> str:
        """Return the page of counters."""
        labels = '{model_name="stub",engine="0"}'
        names = {"num_drafts": 2, "num_draft_tokens": 1, "num_accepted_tokens": 4}
        return "".join(
            f"vllm:spec_decode_{name}_total{labels} {self.drafted // part}.0\n"
            for name, part in names.items()
        )


@contextmanager
def stub_server(stub: Stub) -> Iterator[str]:
    """Serve a stub at a free port, and yield its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            if self.path == "/v1/models":
                self.reply(200, {"data": [{"id": "stub"}]})
            elif self.path == "/metrics" and stub.has_metrics:
                self.reply(200, stub.metrics())
            else:
                self.reply(404, {"error": {"message": "not found"}})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            stub.num_answers += 1
            if stub.dies_after is not None and stub.num_answers > stub.dies_after:
                self.close_connection = True
                return
            unknown = [name for name in stub.refuses if name in body]
            if unknown:
                self.reply(400, {"error": {"message": f"unknown field {unknown[0]}"}})
                return
            self.reply(200, stub.complete(body))

        def reply(self, status: int, body: object) -> None:
            data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Say nothing of clients that leave."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
