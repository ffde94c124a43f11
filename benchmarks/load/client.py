"""A minimal HTTP client that can also misbehave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True)
class Server:
    """Address of the server."""

    host: str
    port: int

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Streams]:
        """Open a connection and abort it at the end, whatever its state."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    async def ask(self, path: str, body: object = None, headers: str = "") -> tuple[int, bytes]:
        """Return the status and the body of a response."""
        async with self.connection() as (reader, writer):
            writer.write(request(path, body, headers))
            status, length = await head(reader)
            return status, await (reader.read() if length is None else reader.readexactly(length))

    async def events(self, path: str, body: dict[str, Any], num: int | None = None) -> list[dict[str, Any]]:
        """Return the events of a stream; the client disconnects after `num` of them."""
        found: list[dict[str, Any]] = []
        async with self.connection() as (reader, writer):
            writer.write(request(path, body | {"stream": True}))
            status, _ = await head(reader)
            if status != 200:
                raise RuntimeError(f"{path}: {status} {(await reader.read())[:300]!r}")
            while num is None or len(found) < num:
                line = await reader.readline()
                if line.startswith(b"data: [DONE]") or not line:
                    break
                if line.startswith(b"data: "):
                    found.append(json.loads(line[6:]))
        return found


def request(path: str, body: object = None, headers: str = "") -> bytes:
    """Return the bytes of a request; a body that is not bytes is sent as JSON."""
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    method = "GET" if body is None else "POST"
    return (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
        f"{headers}Content-Length: {len(data)}\r\n\r\n"
    ).encode() + data


async def head(reader: asyncio.StreamReader) -> tuple[int, int | None]:
    """Return the status of a response, and the length of its body if the header gives it."""
    status, length = int((await reader.readline()).split()[1]), None
    while (line := (await reader.readline()).strip()) != b"":
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return status, length
