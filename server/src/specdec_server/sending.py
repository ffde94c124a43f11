"""Sends responses, complete or as server-sent events."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

from fastapi import Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from specdec import ConfigError, EngineError
from specdec_server.errors import ApiError, error_body

logger = logging.getLogger("specdec")

_CLIENT_LEFT = 499
Result = TypeVar("Result")
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Answer(Protocol):
    """An answer that can be sent complete or streamed."""

    async def response(self) -> dict[str, Any]:
        """Return the body of the response."""

    def pieces(self) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the chunks of a stream."""


async def sent(
    request: Request, answer: Answer, *, is_streaming: bool, has_named_events: bool = False
) -> Response:
    """Return the response for an answer, complete or streamed.

    Args:
        request: of the client; the answer is cancelled if the client disconnects.
        answer: not started.
        is_streaming: whether to send events.
        has_named_events: whether events are named by their `type`, and the stream ends without `[DONE]`.
    """
    if is_streaming:
        return await _streamed(request, answer.pieces(), has_names=has_named_events)
    return await _whole(request, answer.response())


async def _whole(request: Request, work: Coroutine[Any, Any, dict[str, Any]]) -> Response:
    """Return the result of work as JSON."""
    done, body = await _unless_left(request, work)
    return JSONResponse(body) if done else Response(status_code=_CLIENT_LEFT)


async def _streamed(
    request: Request, pieces: AsyncGenerator[dict[str, Any], None], *, has_names: bool
) -> Response:
    """Return a response of server-sent events. It starts with the first chunk, so earlier errors have their own status."""
    done, first = await _unless_left(request, _first_of(pieces))
    if not done:
        return Response(status_code=_CLIENT_LEFT)

    async def events() -> AsyncGenerator[str, None]:
        async with aclosing(pieces):
            try:
                if first is not None:
                    yield _event(first, has_name=has_names)
                async for piece in pieces:
                    yield _event(piece, has_name=has_names)
            except Exception as error:  # the status is already sent, so an event reports the error
                if not isinstance(error, ApiError | ConfigError | EngineError):
                    logger.exception("a stream ends with an error")
                yield _event(error_body(error))
            if not has_names:
                yield "data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream", headers={"Cache-Control": "no-cache"})


async def _first_of(pieces: AsyncGenerator[dict[str, Any], None]) -> dict[str, Any] | None:
    try:
        return await anext(pieces, None)
    except BaseException:
        await pieces.aclose()
        raise


async def _unless_left(request: Request, work: Coroutine[Any, Any, Result]) -> tuple[bool, Result | None]:
    """Return whether work finished before the client disconnected, and its result; unfinished work is cancelled."""
    task = asyncio.create_task(work)
    watch = asyncio.create_task(_until_left(request))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        return (True, task.result()) if task.done() else (False, None)
    finally:
        for other in (task, watch):
            other.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _until_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _event(data: dict[str, Any], *, has_name: bool = False) -> str:
    name = f"event: {data['type']}\n" if has_name else ""
    return f"{name}data: {_encode(data)}\n\n"
