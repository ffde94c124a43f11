"""Hostile requests that the server must reject or survive."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable

from load.client import Server, request

_DEEP = '{"type": "array", "items": ' * 150 + "{}" + "}" * 150
REFUSED: dict[str, tuple[object, int]] = {
    "oversize body": (b'{"prompt": "' + b"x" * 9 * 1024 * 1024 + b'"}', 413),
    "long prompt": ({"prompt": "def f(x):\n" * 200_000}, 400),
    "no JSON": (b'{"prompt": ', 400),
    "deep JSON": (b"[" * 200_000, 400),
    "many fields": (b'{"prompt": "x"' + b"".join(b',"f%d":0' % i for i in range(50_000)) + b"}", 400),
    "empty grammar": ({"prompt": "x", "structured_outputs": {"grammar": "root ::= root"}}, 400),
    "empty schema": ({"prompt": "x", "structured_outputs": {"json": {"$ref": "#"}}}, 400),
    "remote schema": ({"prompt": "x", "structured_outputs": {"json": {"$ref": "file:///etc/passwd"}}}, 400),
    "deep schema": ({"prompt": "x", "structured_outputs": {"json": json.loads(_DEEP)}}, 400),
    "wrong type": ({"prompt": "x", "n": True}, 400),
    "unknown token": ({"prompt": [10**9]}, 400),
}
"""Bodies for `/v1/completions`, and the expected status of each."""


async def be_hostile(server: Server, seed: int, seen: Counter[str]) -> None:
    """Repeatedly send invalid requests, incomplete requests and very large requests, and disconnect early."""
    rng = random.Random(seed)

    async def refused() -> None:
        name, (body, wanted) = rng.choice(list(REFUSED.items()))
        status, _ = await server.ask("/v1/completions", body)
        seen[f"{name}: {status}" + ("" if status == wanted else f", not {wanted}")] += 1

    async def half() -> None:
        async with server.connection() as (_, writer):
            sent = request("/v1/completions", {"prompt": "x"})
            writer.write(sent[: rng.randrange(1, len(sent))])
            await asyncio.sleep(rng.random() * 3)
        seen["half a request"] += 1

    async def much() -> None:
        body = {"prompt": ["import os\n"] * 8, "n": 16, "max_tokens": 200, "ignore_eos": True}
        await server.events("/v1/completions", body, num=rng.randrange(1, 400))
        seen["many samples, left early"] += 1

    async def whole() -> None:
        async with server.connection() as (_, writer):
            writer.write(
                request("/v1/completions", {"prompt": "def f(", "max_tokens": 500, "ignore_eos": True})
            )
            await asyncio.sleep(rng.random())
        seen["whole answer, left early"] += 1

    deeds: list[Callable[[], Awaitable[None]]] = [refused, refused, refused, half, much, whole]
    while True:
        try:
            await rng.choice(deeds)()
        except (ConnectionError, asyncio.IncompleteReadError, IndexError):
            seen["the connection ended"] += 1
        await asyncio.sleep(rng.random())
