"""A bounded queue: rejects requests with status 429 while too many wait."""

from __future__ import annotations

import math
from time import monotonic
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from specdec_server.errors import ApiError, error_body

if TYPE_CHECKING:
    from specdec_server.service import Service

GENERATING = frozenset({"/v1/completions", "/v1/chat/completions", "/v1/responses"})
"""Paths of requests that use the engine."""
_MOST_S = 60


class QueueLimit:
    """Middleware that rejects requests while too many wait; a client that has few of them may add as many again.

    Args:
        app: the wrapped application.
        queue: knows the waiting requests.
        limit: their maximum number.
    """

    def __init__(self, app: ASGIApp, queue: Service, limit: int) -> None:
        self._app, self._queue, self._limit = app, queue, limit
        self._then, self._ended_then = monotonic(), 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or reject a request."""
        is_bounded = scope["type"] == "http" and scope["path"].endswith(tuple(GENERATING))
        if not is_bounded or self._has_room(num_queued := self._queue.num_queued):
            self._queue.load += is_bounded
            try:
                await self._app(scope, receive, send)
            finally:
                self._queue.load -= is_bounded
            return
        error = ApiError(
            f"{num_queued} requests wait already, and the server lets {self._limit} wait (--max-queued-requests): send "
            "this one again later",
            429,
            code="queue_full",
        )
        seconds = {"Retry-After": str(self._seconds_until(num_queued))}
        await JSONResponse(error_body(error), error.status, seconds)(scope, receive, send)

    def _has_room(self, num_queued: int) -> bool:
        return num_queued < self._limit or (num_queued < 2 * self._limit and self._queue.has_share)

    def _seconds_until(self, num_queued: int) -> int:
        """Return the seconds until the queue is half as long, at the recent rate of finished requests."""
        now, ended = monotonic(), self._queue.num_ended
        rate = (ended - self._ended_then) / max(now - self._then, 1e-3)
        if now - self._then > _MOST_S:
            self._then, self._ended_then = now, ended
        return _MOST_S if rate <= 0 else max(1, min(_MOST_S, math.ceil(num_queued / 2 / rate)))
