"""Limits on the size and the arrival time of request bodies."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specdec_server.errors import ApiError, error_body
from specdec_server.limits import Limits

_LINGER_S = 5.0
_LINGER_BODIES = 16
_MOST_BODIES = 32
"""How many of the longest bodies are kept in memory at once."""


class BodyLimit:
    """Middleware that reads the whole body of a request before the application runs, or rejects the request.

    Args:
        app: the wrapped application.
        limits: maximum bytes and seconds.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits
        self._num_bytes = 0
        """Bytes of all bodies whose requests are not finished."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or reject a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        pieces: list[bytes] = []
        try:
            await self._answer(scope, receive, send, pieces)
        finally:
            self._num_bytes -= sum(map(len, pieces))

    async def _answer(self, scope: Scope, receive: Receive, send: Send, pieces: list[bytes]) -> None:
        error: ApiError | None
        try:
            async with asyncio.timeout(self._limits.body_timeout_s):
                is_whole, error = await self._read(Headers(scope=scope), receive, pieces)
        except TimeoutError:
            error = ApiError(
                f"the body did not arrive within {self._limits.body_timeout_s:g} s, the server's --body-timeout",
                408,
            )
        if error is not None:
            await self._refuse(error, receive, send)
        elif is_whole:
            pieces[:] = [b"".join(pieces)]
            await self._app(scope, _replay(pieces[0], receive), send)

    async def _read(
        self, headers: Headers, receive: Receive, pieces: list[bytes]
    ) -> tuple[bool, ApiError | None]:
        """Collect the pieces of the body; return whether it is whole, and the reason for rejection."""
        limit, content_length = self._limits.max_request_bytes, headers.get("content-length", "")
        if content_length.isdecimal() and int(content_length) > limit:
            return False, self._too_long(f"{int(content_length)} bytes")
        length, is_more = 0, True
        while is_more:
            message = await receive()
            if message["type"] != "http.request":
                return False, None
            piece = message.get("body", b"")
            length += len(piece)
            is_more = message.get("more_body", False)
            if length > limit:
                return False, self._too_long(f"more than {limit} bytes")
            if self._num_bytes + len(piece) > _MOST_BODIES * limit:
                return False, ApiError(
                    "the server holds as many bytes of requests as it can: send this one again later",
                    503,
                    headers={"Retry-After": "5"},
                )
            pieces.append(piece)
            self._num_bytes += len(piece)
        return True, None

    def _too_long(self, what: str) -> ApiError:
        limit = self._limits.max_request_bytes
        return ApiError(
            f"the body has {what} and the server takes {limit} (--max-request-bytes): send less at once", 413
        )

    async def _refuse(self, error: ApiError, receive: Receive, send: Send) -> None:
        """Answer, then discard what the client still sends for a while, since clients read only after sending everything."""
        answer = JSONResponse(
            error_body(error), error.status, {"Connection": "close", **(error.headers or {})}
        )
        start = {"type": "http.response.start", "status": error.status, "headers": answer.raw_headers}
        await send(start)
        await send({"type": "http.response.body", "body": answer.body, "more_body": True})
        length = 0
        try:
            async with asyncio.timeout(_LINGER_S):
                while length < _LINGER_BODIES * self._limits.max_request_bytes and error.status != 408:
                    message = await receive()
                    length += len(message.get("body", b""))
                    if message["type"] != "http.request" or not message.get("more_body", False):
                        break
        except TimeoutError:
            pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a receive function that first returns the body, then later messages."""
    is_given = False

    async def replay() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
