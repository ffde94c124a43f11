"""The bytes of bodies in memory are counted while their requests run, and given back when they end."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message, Receive, Scope, Send

from specdec_server.body import BodyLimit
from specdec_server.limits import Limits


async def run(pieces: list[bytes], limits: Limits) -> tuple[list[bytes], int, int]:
    """Send a body in pieces; returns what the application read, and the bytes counted then and afterwards."""
    read: list[bytes] = []
    counted = 0

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal counted
        counted = limit._num_bytes
        read.append((await receive())["body"])

    limit = BodyLimit(application, limits)
    messages = iter(
        {"type": "http.request", "body": piece, "more_body": number + 1 < len(pieces)}
        for number, piece in enumerate(pieces)
    )

    async def receive() -> Message:
        return next(messages, {"type": "http.disconnect"})

    async def send(message: Message) -> None:
        pass

    await limit({"type": "http", "headers": []}, receive, send)
    return read, counted, limit._num_bytes


@pytest.mark.parametrize("pieces", [[b"whole"], [b"in", b" two"], [b"a", b"", b"bc", b"def"]])
def test_bytes_are_given_back(pieces: list[bytes]) -> None:
    read, counted, left = asyncio.run(run(pieces, Limits()))
    assert read == [b"".join(pieces)]
    assert counted == len(read[0])
    assert left == 0


def test_bytes_of_a_body_that_is_too_long_are_given_back() -> None:
    read, _, left = asyncio.run(run([b"1234", b"5678", b"9"], Limits(max_request_bytes=8)))
    assert read == []
    assert left == 0
