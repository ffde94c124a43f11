"""Log of what the front process refuses by itself; an engine logs what it answers."""

from __future__ import annotations

import logging

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specdec_server.access import QUIET, in_a_line, line_of
from specdec_server.client import client_of
from specdec_server.record import CURRENT_RECORD, RequestRecord

logger = logging.getLogger("specdec.access")


class Refusals:
    """Middleware that logs refused requests which no engine has seen, and gives their responses an id.

    Args:
        app: the wrapped application.
        by_key: whether clients have their own keys.
    """

    def __init__(self, app: ASGIApp, *, by_key: bool) -> None:
        self._app, self._by_key = app, by_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client = client_of(scope, by_key=self._by_key)
        record = RequestRecord(scope["method"], in_a_line(scope["path"]), in_a_line(client))
        CURRENT_RECORD.set(record)

        async def recording_send(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                headers = MutableHeaders(scope=message)
                if "x-request-id" not in headers:  # of an engine
                    record.status = message["status"]
                    headers["x-request-id"] = record.request_id
            await send(message)

        try:
            await self._app(scope, receive, recording_send)
        finally:
            if record.status is not None:
                logger.log(logging.DEBUG if record.path in QUIET else logging.INFO, "%s", line_of(record))
