"""The server as an ASGI application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from specdec import AsyncLLM
from specdec_server.errors import add_error_handlers
from specdec_server.key import KeyCheck
from specdec_server.routes import chat, completions, status, tokens
from specdec_server.service import Service
from specdec_server.settings import Settings
from specdec_server.speculation_log import log_speculation


def create_app(llm: AsyncLLM, settings: Settings) -> FastAPI:
    """Return an application that serves an engine. It shuts the engine down when it ends itself.

    Args:
        llm: the engine.
        settings: how to answer.
    """
    service = Service(llm, settings)

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

    app = FastAPI(title="specdec", lifespan=life, docs_url=None, redoc_url=None)
    app.state.service = service
    add_error_handlers(app)
    if settings.api_key is not None:
        app.add_middleware(KeyCheck, key=settings.api_key)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=settings.allowed_origins, allow_methods=["*"], allow_headers=["*"]
        )
    for routes in (completions, chat, status, tokens):
        app.include_router(routes.router)
    return app
