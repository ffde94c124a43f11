"""Sends responses, complete or as server-sent events."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from specdec import ConfigError, EngineError, RequestOutput
from specdec_server.errors import ApiError, error_body
from specdec_server.threads import in_thread

logger = logging.getLogger("specdec")

_CLIENT_LEFT = 499
_DEPTH = 5
"""Depth of the lists of a response that grow with its length: choices, logprobs, content."""
_BLOCK = 256
Result = TypeVar("Result")
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Answer(Protocol):
    """An answer that can be sent complete or streamed."""

    async def outputs(self) -> list[RequestOutput]:
        """Return the finished outputs."""

    def response(self, outputs: list[RequestOutput]) -> dict[str, Any]:
        """Return the body of the response. It runs outside the event loop: one response may list millions of numbers."""

    def chunks(self) -> AsyncGenerator[dict[str, Any], None]:
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
        return await _streamed(request, answer.chunks(), has_names=has_named_events)
    done, response = await _unless_left(request, _whole(answer))
    return response if done and response is not None else Response(status_code=_CLIENT_LEFT)


async def _whole(answer: Answer) -> Response:
    outputs = await answer.outputs()
    return await in_thread(lambda: json_response(answer.response(outputs)))


def json_response(body: dict[str, Any]) -> Response:
    """Return a response with a body as JSON, encoded in small parts, between which other threads can run."""
    return Response("".join(_parts(body, _DEPTH)).encode(), media_type="application/json")


def _parts(value: Any, depth: int) -> Iterator[str]:
    """Yield the JSON of a value; containers are taken apart down to a depth."""
    if isinstance(value, dict) and depth:
        mark = "{"
        for key, item in value.items():
            yield f"{mark}{_encode(key)}:"
            yield from _parts(item, depth - 1)
            mark = ","
        yield "}" if value else "{}"
    elif isinstance(value, list) and depth and value:
        mark = "["
        for start in range(0, len(value), _BLOCK):
            block = value[start : start + _BLOCK]
            if isinstance(block[0], dict | list):
                for item in block:
                    yield mark
                    yield from _parts(item, depth - 1)
                    mark = ","
            else:
                yield mark + _encode(block)[1:-1]
                mark = ","
        yield "]"
    else:
        yield _encode(value)


async def _streamed(
    request: Request, chunks: AsyncGenerator[dict[str, Any], None], *, has_names: bool
) -> Response:
    """Return a response of server-sent events. It starts with the first chunk, so earlier errors have their own status."""
    done, first = await _unless_left(request, _first_of(chunks))
    if not done:
        return Response(status_code=_CLIENT_LEFT)

    async def events() -> AsyncGenerator[str, None]:
        async with aclosing(chunks):
            try:
                if first is not None:
                    yield _event(first, has_name=has_names)
                async for chunk in chunks:
                    yield _event(chunk, has_name=has_names)
            except Exception as error:  # the status is already sent, so an event reports the error
                if not isinstance(error, ApiError | ConfigError | EngineError):
                    logger.exception("a stream ends with an error")
                yield _event(error_body(error))
            if not has_names:
                yield "data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream", headers={"Cache-Control": "no-cache"})


async def _first_of(chunks: AsyncGenerator[dict[str, Any], None]) -> dict[str, Any] | None:
    try:
        return await anext(chunks, None)
    except BaseException:
        await chunks.aclose()
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
