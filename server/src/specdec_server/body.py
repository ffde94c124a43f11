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


class BodyLimit:
    """Middleware that reads the whole body of a request before the application runs, or rejects the request.

    Args:
        app: the wrapped application.
        limits: maximum bytes and seconds.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or reject a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._limits.body_timeout_s):
                body = await self._read(Headers(scope=scope), receive)
        except TimeoutError:
            body = ApiError(
                f"the body did not arrive within {self._limits.body_timeout_s:g} s, the server's --body-timeout",
                408,
            )
        if isinstance(body, ApiError):
            await self._refuse(body, receive, send)
        elif body is not None:
            await self._app(scope, _replay(body, receive), send)

    async def _read(self, headers: Headers, receive: Receive) -> bytes | ApiError | None:
        """Return the body, the reason for rejection, or None if the client disconnected."""
        limit, told = self._limits.max_request_bytes, headers.get("content-length", "")
        if told.isdecimal() and int(told) > limit:
            return self._too_long(f"{int(told)} bytes")
        pieces, length, is_more = [], 0, True
        while is_more:
            message = await receive()
            if message["type"] != "http.request":
                return None
            pieces.append(message.get("body", b""))
            length += len(pieces[-1])
            is_more = message.get("more_body", False)
            if length > limit:
                return self._too_long(f"more than {limit} bytes")
        return b"".join(pieces)

    def _too_long(self, what: str) -> ApiError:
        limit = self._limits.max_request_bytes
        return ApiError(
            f"the body has {what} and the server takes {limit} (--max-request-bytes): send less at once", 413
        )

    async def _refuse(self, error: ApiError, receive: Receive, send: Send) -> None:
        """Answer, then discard what the client still sends for a while, since clients read only after sending everything."""
        answer = JSONResponse(error_body(error), error.status, {"Connection": "close"})
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
