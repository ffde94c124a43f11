"""Access log: one line per request with method, status and metrics, never with its text."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specdec import RequestOutput
from specdec_server.client import client_of
from specdec_server.errors import ApiError, error_body
from specdec_server.reason import CLIENT_LEFT, logged
from specdec_server.record import CURRENT_RECORD, RequestRecord
from specdec_server.tracing import Tracing

logger = logging.getLogger("specdec.access")

QUIET = frozenset({"/health", "/ping", "/metrics"})
"""Paths that monitoring polls every few seconds; logged only at level debug."""
_ID = re.compile(r"[\w.:-]{1,128}")


class Access:
    """Middleware that assigns request ids, keeps a record of each request, logs it, and answers unexpected errors.

    Args:
        app: the wrapped application.
        by_key: whether clients have their own keys.
        is_logged: whether requests are logged.
        tracing: creates a span for each request.
        on_refusal: called with the status of every error response.
        pages: paths of static files; their requests are logged at level debug only.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        by_key: bool,
        is_logged: bool,
        tracing: Tracing,
        on_refusal: Callable[[int], None],
        pages: frozenset[str] = frozenset(),
    ) -> None:
        self._app, self._by_key, self._is_logged = app, by_key, is_logged
        self._tracing, self._on_refusal = tracing, on_refusal
        self._quiet = QUIET | pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client = client_of(scope, by_key=self._by_key)
        record = RequestRecord(scope["method"], in_a_line(scope["path"]), in_a_line(client))
        given = Headers(scope=scope).get("x-request-id", "")
        if _ID.fullmatch(given):
            record.request_id = given
        CURRENT_RECORD.set(record)
        started = self._tracing.now()

        async def recording_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = record.request_id
            await send(message)

        try:
            await self._app(scope, receive, recording_send)
        except Exception:
            logger.exception("%s %s id=%s failed", record.method, record.path, record.request_id)
            if record.status is None:
                await self._apologise(record, scope, receive, recording_send)
        finally:
            if (record.status or 0) >= 400:
                self._on_refusal(record.status or 0)
            level = logging.DEBUG if record.path in self._quiet else logging.INFO
            if self._is_logged and logger.isEnabledFor(level):
                logger.log(level, "%s", line_of(record))
            self._tracing.ended(record, Headers(scope=scope), started)

    async def _apologise(self, record: RequestRecord, scope: Scope, receive: Receive, send: Send) -> None:
        error = ApiError(
            f"the server made a mistake; its log tells more about the request {record.request_id}", 500
        )
        await JSONResponse(error_body(error), 500)(scope, receive, send)


def in_a_line(text: str) -> str:
    """Return a text of a client as one printable word, in which everything unusual is percent-encoded."""
    return quote(text, safe="/:@!$&'()*+,;=~[]", errors="replace")


def line_of(record: RequestRecord) -> str:
    """Return the log line of a finished request, as pairs of names and values."""
    words = [
        record.method,
        record.path,
        f"status={record.status or 499}",
        f"id={record.request_id}",
        f"client={record.client}",
    ]
    outputs = list(record.outputs.values())
    if outputs:
        words += _of_outputs(outputs)
    words.append(f"total={record.seconds:.3f}s")
    reason = CLIENT_LEFT if record.status in (None, 499) else record.reason
    return " ".join(words if reason is None else [*words, f"reason={logged(reason)}"])


def _of_outputs(outputs: list[RequestOutput]) -> list[str]:
    samples = [sample for output in outputs for sample in output.outputs]
    all_metrics = [output.metrics for output in outputs]
    queued = [metrics.queue_time for metrics in all_metrics if metrics.queue_time is not None]
    firsts = [
        metrics.time_to_first_token for metrics in all_metrics if metrics.time_to_first_token is not None
    ]
    ends = sorted({sample.finish_reason or "abort" for sample in samples})
    return [
        f"prompt_tokens={sum(len(output.prompt_token_ids) for output in outputs)}",
        f"cached_tokens={sum(output.num_cached_tokens for output in outputs)}",
        f"output_tokens={sum(len(sample.token_ids) for sample in samples)}",
        f"drafted={sum(metrics.num_draft_tokens for metrics in all_metrics)}",
        f"accepted={sum(metrics.num_accepted_tokens for metrics in all_metrics)}",
        f"finish={','.join(ends)}",
        *([f"queued={max(queued):.3f}s"] if queued else []),
        *([f"first={min(firsts):.3f}s"] if firsts else []),
    ]
