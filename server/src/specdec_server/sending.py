"""How responses go out: whole, or as events while they grow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from specdec_server.errors import error_body

_CLIENT_LEFT = 499
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


async def whole(request: Request, work: Coroutine[Any, Any, dict[str, Any]]) -> Response:
    """Return what work makes as JSON; give the work up if the client leaves."""
    task = asyncio.create_task(work)
    watch = asyncio.create_task(_until_left(request))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            return Response(status_code=_CLIENT_LEFT)
        return JSONResponse(task.result())
    finally:
        for other in (task, watch):
            other.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def streamed(pieces: AsyncGenerator[dict[str, Any], None]) -> StreamingResponse:
    """Return a response of server-sent events. It begins with the first piece, so that errors before it have their status.

    Args:
        pieces: the events; closed early if the client leaves.
    """
    first = await anext(pieces, None)

    async def events() -> AsyncGenerator[str, None]:
        async with aclosing(pieces):
            try:
                if first is not None:
                    yield _event(first)
                async for piece in pieces:
                    yield _event(piece)
            except (RuntimeError, ValueError) as error:  # the status has been sent: an event must tell
                yield _event(error_body(error))
            yield "data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream", headers={"Cache-Control": "no-cache"})


async def _until_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _event(data: dict[str, Any]) -> str:
    return f"data: {_encode(data)}\n\n"
