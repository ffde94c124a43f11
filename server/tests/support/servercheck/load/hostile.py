"""Requests of a hostile client. Each is sent as bytes over a connection of its own."""

from __future__ import annotations

import json
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

MIB = 2**20
_CHAT, _COMPLETIONS, _RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
_USER = {"role": "user", "content": "Write."}
Connection = socket.socket


def post(path: str, body: bytes | dict[str, Any], key: str, *, method: str = "POST") -> bytes:
    """Return a request as bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    ).encode() + data


def _filled(before: str, item: str, after: str, size: int = 8 * MIB - 1000) -> bytes:
    """Return a JSON text with so many items between two parts that it is almost as long as a body may be."""
    return f"{before}{','.join([item] * (size // (len(item) + 1)))}{after}".encode()


def _schema(depth: int) -> dict[str, Any]:
    inner = {"type": "string"} if not depth else _schema(depth - 1)
    return {"type": "object", "properties": {"a": inner, "b": {"type": "array", "items": inner}}}


def bodies() -> dict[str, tuple[str, bytes | dict[str, Any]]]:
    """Return paths and bodies by what is too much in them."""
    stops = [f"stop {place}" for place in range(300_000)]
    prompt: dict[str, Any] = {"prompt": "def main(", "max_tokens": 8}
    chat: dict[str, Any] = {"messages": [_USER], "max_tokens": 8}
    keys = ",".join(f'"k{place}":0' for place in range(600_000))
    tool = {"type": "function", "function": {"name": "f", "parameters": _schema(4)}}
    tools = [{**tool, "function": {**tool["function"], "name": f"f{place}"}} for place in range(500)]
    return {
        "300,000 stop strings": (_COMPLETIONS, {**prompt, "stop": stops}),
        "as many stop strings as are taken": (_COMPLETIONS, {**prompt, "n": 4, "stop": [f"{i:0500}" for i in range(128)]}),
        "one long stop string": (_COMPLETIONS, {**prompt, "stop": "x" * 8_000_000}),
        "3 million stop ids": (_COMPLETIONS, _filled('{"prompt":"x","stop_token_ids":[', "7", "]}")),
        "allowed ids": (_COMPLETIONS, {**prompt, "n": 8, "allowed_token_ids": [5, 6, 7] * 60_000}),
        "bad words": (_COMPLETIONS, {**prompt, "n": 16, "bad_words": [f"bad {place}" for place in range(1024)]}),
        "biases": (_COMPLETIONS, {**prompt, "n": 16, "logit_bias": {str(place): 1 for place in range(1000)}}),
        "a long prompt": (_COMPLETIONS, {"prompt": "x y " * (2 * MIB - 1000)}),
        "a long prompt to be cut": (_COMPLETIONS, {**prompt, "prompt": "x y " * (MIB // 4), "truncate_prompt_tokens": 9}),
        "a prompt of escapes": (_COMPLETIONS, b'{"prompt":"' + rb"\u00e9" * (MIB + MIB // 4) + b'"}'),
        "a prompt of ids": (_COMPLETIONS, _filled('{"prompt":[', "300", "]}")),
        "as many ids as are taken": (_COMPLETIONS, {"prompt": [300] * 240_000}),
        "a batch of prompts": (_COMPLETIONS, {"prompt": ["def main("] * 1000, "max_tokens": 1}),
        "more prompts than are taken": (_COMPLETIONS, {"prompt": ["def main("] * 4000, "max_tokens": 1}),
        "too many prompts": (_COMPLETIONS, _filled('{"prompt":[', '"x"', "]}")),
        "lists": (_COMPLETIONS, _filled('{"prompt":[', "[]", "]}")),
        "keys": (_COMPLETIONS, f'{{"prompt":"x","logit_bias":{{{keys}}}}}'.encode()),
        "fields": (_COMPLETIONS, f'{{"prompt":"x",{keys}}}'.encode()),
        "depth": (_CHAT, f'{{"messages":[],"metadata":{"[" * 700}{"]" * 700}}}'.encode()),
        "many samples": (_COMPLETIONS, {**prompt, "n": 128, "max_tokens": 16, "ignore_eos": True}),
        "log probabilities": (_COMPLETIONS, {**prompt, "n": 32, "max_tokens": 32, "logprobs": 20, "ignore_eos": True}),
        "log probabilities of the prompt": (_COMPLETIONS, {"prompt": "x y " * 400, "prompt_logprobs": 20, "max_tokens": 1}),
        "messages": (_CHAT, {**chat, "messages": [_USER] * 100_000}),
        "as many messages as are taken": (_CHAT, {**chat, "messages": [{"role": "tool", "content": "x"}] * 10_000}),
        "tools": (_CHAT, {**chat, "tools": tools}),
        "a schema": (_CHAT, {**chat, "response_format": {"type": "json_schema", "json_schema": {"schema": _schema(9)}}}),
        "a grammar": (_COMPLETIONS, {**prompt, "structured_outputs": {"regex": "((a|b|c|d){1,40}x){1,40}"}}),
        "a response stored again": (_RESPONSES, {"input": "x " * 300, "metadata": {"a": "y" * MIB}, "max_output_tokens": 1,
                                                 "request_id": "mine"}),
        "somebody else's response": (_RESPONSES, {"input": "x", "previous_response_id": "resp_honest", "max_output_tokens": 1}),
        "text to tokenize": ("/tokenize", {"prompt": "x y " * (2 * MIB - 1000)}),
        "as much text as is tokenized": ("/tokenize", {"prompt": "x y " * (MIB // 4), "return_token_strs": True}),
        "ids to detokenize": ("/detokenize", _filled('{"tokens":[', "300", "]}")),
        "as many ids as are detokenized": ("/detokenize", {"tokens": [300] * 131_072}),
        "no JSON": (_CHAT, b"[" * (8 * MIB - 1000)),
        "too long": (_CHAT, b" " * (9 * MIB)),
    }  # fmt: skip


def _sent(data: bytes) -> Callable[[Connection], int]:
    def act(connection: Connection) -> int:
        connection.sendall(data)
        return status_of(connection)

    return act


def _trickled(head: bytes, seconds: float) -> Callable[[Connection], int]:
    """A byte now and then."""

    def act(connection: Connection) -> int:
        connection.sendall(head)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            connection.sendall(b"x")
            time.sleep(0.5)
        return 0

    return act


def _left(data: bytes, seconds: float) -> Callable[[Connection], int]:
    """Leave while the request runs."""

    def act(connection: Connection) -> int:
        connection.sendall(data)
        time.sleep(seconds)
        return 0

    return act


def _unread(data: bytes, seconds: float) -> Callable[[Connection], int]:
    """Read nothing of what comes."""

    def act(connection: Connection) -> int:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(data)
        time.sleep(seconds)
        return 0

    return act


def actions(key: str, seed: int) -> Iterator[tuple[str, Callable[[Connection], int]]]:
    """Yield, without end and in an order of its own for each seed, names and what to do with a new connection."""
    long = {
        "prompt": "def main(",
        "max_tokens": 200,
        "ignore_eos": True,
        "n": 16,
        "stream": True,
        "logprobs": 20,
    }
    endless = post(_COMPLETIONS, long, key)
    head = post(_COMPLETIONS, b"", key).partition(b"Content-Length")[0]
    forged = "/v1/x%0a2026-01-01%2000:00:00%20INFO%20specdec:%20forged%1b[2J"
    found = {name: _sent(post(path, body, key)) for name, (path, body) in bodies().items()}
    found |= {
        "a wrong key": _sent(post(_COMPLETIONS, b" " * 4 * MIB, "wrong")),
        "a forged line": _sent(post(forged, b"", key, method="GET")),
        "the schema": _sent(post("/openapi.json", b"", key, method="GET")),
        "the metrics": _sent(post("/metrics", b"", key, method="GET") * 5),
        "a slow header": _trickled(b"POST / HTTP/1.1\r\nX-Slow: ", 4.0),
        "a slow body": _trickled(head + b"Content-Length: 100\r\n\r\n", 4.0),
        "a slow body of GET": _trickled(head.replace(b"POST", b"GET") + b"Content-Length: 100\r\n\r\n", 4.0),
        "a slow body with a wrong key": _trickled(
            head.replace(key.encode(), b"no") + b"Content-Length: 100\r\n\r\n", 4.0
        ),
        "leaves at once": _left(endless, 0.0),
        "leaves soon": _left(endless, 0.5),
        "leaves within a body": _left(endless[:-20], 0.1),
        "reads nothing": _unread(endless, 3.0),
    }
    order = random.Random(seed)
    names = list(found)
    while True:
        order.shuffle(names)
        for name in names:
            yield name, found[name]


def status_of(connection: Connection) -> int:
    """Read a response to its end; return its status, 0 if there is none."""
    first = b""
    while chunk := connection.recv(MIB):
        first = (first + chunk)[:12] if len(first) < 12 else first
        if chunk.endswith((b"0\r\n\r\n", b"}", b"\r\n\r\n")):
            break
    return int(first[9:12]) if first.startswith(b"HTTP/1.1 ") else 0


def attack(port: int, key: str, seed: int, seconds: float) -> Counter[tuple[str, int]]:
    """Send hostile requests one after the other for some time.

    Returns:
        How often each name ended with each status; 0 if there was no response.
    """
    until, seen = time.monotonic() + seconds, Counter[tuple[str, int]]()
    for name, act in actions(key, seed):
        if time.monotonic() > until:
            return seen
        status = 0
        with closing(socket.create_connection(("127.0.0.1", port))) as connection, suppress(OSError):
            connection.settimeout(20.0)
            status = act(connection)
        seen[name, status] += 1
    raise AssertionError("actions have no end")
