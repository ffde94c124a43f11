"""Application of the front process: relays each request to an engine and answers for lost engines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import aclosing, suppress
from typing import Any
from urllib.parse import quote

import httpx2
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from specdec_server.data_parallel.conversation import conversation_of
from specdec_server.data_parallel.engine import EngineProcess
from specdec_server.data_parallel.engines import Engines
from specdec_server.data_parallel.metrics import merged_metrics
from specdec_server.errors import ApiError, error_body
from specdec_server.threads import in_thread

logger = logging.getLogger("specdec")

_OF_ONE_CONNECTION = frozenset(
    (b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect")
)
_OURS = _OF_ONE_CONNECTION | {b"content-length", b"x-forwarded-for", b"x-forwarded-proto"}
_OF_A_SERVER = frozenset((b"date", b"server"))  # the front writes its own
_AGAIN = {"Retry-After": "1"}
_METRICS_TIMEOUT_S = 10.0


_JOINED: dict[tuple[str, str], tuple[str, Callable[[Iterable[Any]], Any]]] = {
    ("GET", "/load"): ("server_load", sum),
    ("POST", "/reset_prefix_cache"): ("success", all),
}
"""Requests that every engine answers: the key of the answer, and what joins its values."""


class Relay:
    """Answers health checks, merges the metrics of all engines, and relays everything else.

    Args:
        engines: the engines to relay to.
    """

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; stop if its client disconnects."""
        if scope["path"] in ("/health", "/ping"):
            await Response(status_code=200 if self._engines.ready else 503)(scope, receive, send)
        elif scope["path"] == "/metrics":
            await (await self._metrics())(scope, receive, send)
        elif (joined := _JOINED.get((scope["method"], scope["path"]))) is not None:
            await (await self._joined(scope, *joined))(scope, receive, send)
        else:
            body = (await receive()).get("body", b"")  # complete: `BodyLimit` has assembled it
            work = asyncio.create_task(self._relay(scope, body, receive, send))
            watch = asyncio.create_task(_until_left(receive))
            try:
                await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    work.result()
            finally:
                for task in (work, watch):
                    task.cancel()
                await asyncio.gather(work, watch, return_exceptions=True)

    async def _metrics(self) -> Response:
        async def page_of(engine: EngineProcess) -> str:
            try:
                return (await engine.client.get("/metrics", timeout=_METRICS_TIMEOUT_S)).text
            except httpx2.TransportError:
                return ""

        pages = await asyncio.gather(*map(page_of, self._engines.ready))
        return Response(merged_metrics(self._engines, pages), media_type=CONTENT_TYPE_LATEST)

    async def _joined(self, scope: Scope, key: str, join: Callable[[Iterable[Any]], Any]) -> Response:
        """Ask every engine, and return what they say together."""

        async def said_by(engine: EngineProcess) -> Any:
            with suppress(
                httpx2.TransportError
            ):  # it is started again, and has nothing cached nor running then
                answer = await engine.client.request(
                    scope["method"], _url_of(scope), headers=_headers_of(scope)
                )
                return answer.json()[key]
            return None

        answers = await asyncio.gather(*map(said_by, self._engines.ready))
        return JSONResponse({key: join(each for each in answers if each is not None)})

    async def _relay(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        conversation = await in_thread(conversation_of, scope["path"], body)
        engine = self._engines.choose(conversation)
        if engine is None:
            await _refusal(self._nobody())(scope, receive, send)
            return
        sender = _Sender(scope, receive, send)
        engine.num_running += 1
        engine.num_served += 1
        try:
            async with engine.client.stream(
                scope["method"], _url_of(scope), headers=_headers_of(scope), content=body
            ) as answer:
                await sender.relay(answer)
        except httpx2.TransportError as error:
            logger.warning(
                "%s %s: engine %d is lost (%r)",
                scope["method"],
                quote(scope["path"]),
                engine.index,
                error,
            )
            await sender.lost(self._nobody() if self._engines.is_stopping else _lost())
        finally:
            engine.num_running -= 1

    def _nobody(self) -> ApiError:
        if self._engines.is_stopping:
            message = (
                "the server is being shut down: send the request again in a moment, or to another server"
            )
            return ApiError(message, 503, code="shutting_down", headers=_AGAIN)
        message = "no engine serves at the moment, they are started again: send the request again in a moment"
        return ApiError(message, 503, code="no_engine", headers=_AGAIN)


class _Sender:
    """Relays a response: events as they arrive, anything else only when complete, so an error can still replace it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._has_begun = False

    async def relay(self, answer: httpx2.Response) -> None:
        headers = [(key.lower(), value) for key, value in answer.headers.raw]
        headers = [pair for pair in headers if pair[0] not in _OF_ONE_CONNECTION | _OF_A_SERVER]
        start = {"type": "http.response.start", "status": answer.status_code, "headers": headers}
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            body = b"".join([piece async for piece in answer.aiter_raw()])
            self._has_begun = True
            await self._send(start)
            await self._body(body, is_last=True)
            return
        self._has_begun = True
        await self._send(start)
        rest = b""
        async with aclosing(answer.aiter_raw()) as pieces:
            async for piece in pieces:
                rest += piece
                whole, mark, rest = rest.rpartition(b"\n\n")
                if mark:
                    await self._body(whole + mark)
        await self._body(rest, is_last=True)

    async def lost(self, error: ApiError) -> None:
        """Report that the engine is gone; an incomplete event is dropped."""
        if not self._has_begun:
            await _refusal(error)(self._scope, self._receive, self._send)
            return
        body = JSONResponse(error_body(error)).body
        done = b"" if self._scope["path"].endswith("/responses") else b"data: [DONE]\n\n"
        await self._body(b"data: " + bytes(body) + b"\n\n" + done, is_last=True)

    async def _body(self, body: bytes, *, is_last: bool = False) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})


def _lost() -> ApiError:
    message = "the engine that worked on the request has ended and is started again: send the request again in a moment"
    return ApiError(message, 503, code="engine_lost", headers=_AGAIN)


def _refusal(error: ApiError) -> Response:
    return JSONResponse(error_body(error), error.status, error.headers)


def _url_of(scope: Scope) -> httpx2.URL:
    path = scope.get("raw_path") or scope["path"].encode()
    query = scope.get("query_string", b"")
    return httpx2.URL("http://engine").copy_with(raw_path=path + (b"?" + query if query else b""))


def _headers_of(scope: Scope) -> list[tuple[bytes, bytes]]:
    address = scope.get("client")
    client = [] if address is None else [(b"x-forwarded-for", str(address[0]).encode())]
    scheme = (b"x-forwarded-proto", scope["scheme"].encode())
    return [*((key, value) for key, value in scope["headers"] if key not in _OURS), *client, scheme]


async def _until_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
