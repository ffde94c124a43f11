"""The server as an ASGI application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from specdec import AsyncLLM, __version__
from specdec_server.access import Access
from specdec_server.body import BodyLimit
from specdec_server.errors import add_error_handlers
from specdec_server.host import HostCheck
from specdec_server.key import KeyCheck
from specdec_server.openapi.document import GROUPS, complete_document
from specdec_server.protocol import ChatRequest, CompletionRequest
from specdec_server.protocol.responses import ResponsesRequest
from specdec_server.protocol.tokens import DetokenizeRequest, TokenizeRequest
from specdec_server.queueing import QueueLimit
from specdec_server.responses import ResponseStore
from specdec_server.routes import chat, completions, responses, status, tokens
from specdec_server.routes.page import add_pages, page_paths
from specdec_server.service import Service
from specdec_server.settings import Settings
from specdec_server.speculation_log import log_speculation
from specdec_server.tracing import Tracing


def create_app(llm: AsyncLLM, settings: Settings) -> FastAPI:
    """Return an application that serves an engine and shuts it down when the application ends.

    Args:
        llm: the engine.
        settings: how to answer.
    """
    service, tracing = Service(llm, settings), Tracing(settings.otlp_traces_endpoint)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        tasks = []
        if settings.log_every_s:
            tasks.append(asyncio.create_task(log_speculation(llm.get_metrics, settings.log_every_s)))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.to_thread(service.close)
            await asyncio.to_thread(tracing.close)

    schema = "/openapi.json" if settings.are_docs_served else None
    pages = page_paths(has_page=settings.is_page_served, has_docs=settings.are_docs_served)
    app = FastAPI(
        title="specdec",
        version=__version__,
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        openapi_url=schema,
        openapi_tags=GROUPS,
    )
    app.state.service = service
    app.state.responses = ResponseStore(settings.max_stored_responses)
    add_error_handlers(app)
    app.add_middleware(BodyLimit, limits=settings.limits)
    app.add_middleware(QueueLimit, queue=service, limit=settings.limits.max_queued_requests)
    if settings.api_keys:
        app.add_middleware(KeyCheck, keys=settings.api_keys, pages=pages)
    else:
        app.add_middleware(HostCheck, names=settings.allowed_hosts)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=settings.allowed_origins, allow_methods=["*"], allow_headers=["*"]
        )
    app.add_middleware(
        Access,
        by_key=len(settings.api_keys) > 1,
        is_logged=settings.is_access_logged,
        tracing=tracing,
        on_refusal=service.telemetry.refused,
        pages=pages,
    )
    for routes in (completions, chat, responses, status, tokens):
        app.include_router(routes.router)
    add_pages(app, settings)
    if schema is not None:  # made now, since it takes long and would keep requests waiting
        complete_document(
            app, CompletionRequest, ChatRequest, ResponsesRequest, TokenizeRequest, DetokenizeRequest
        )
    return app
