"""One replica: an engine and the server application around it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from specdec import AsyncLLM
from specdec_cli import quiet_libraries
from specdec_server.app import create_app
from specdec_server.launch import read_template, reasoning_parser_named, set_template, tool_parser_named
from specdec_server.ray.arguments import RayArguments
from specdec_server.ray.metrics import export_metrics
from specdec_server.settings import Settings


class Replica:
    """One replica; Ray creates each in a separate process.

    Args:
        arguments: of the application.

    Raises:
        ConfigError: for errors that the user can fix; Ray shows them in the state of the deployment.
    """

    def __init__(self, arguments: RayArguments) -> None:
        settings = Settings(
            model_names=(arguments.served_model_name or arguments.model,),
            root=arguments.model,
            api_key=arguments.api_key,
            tool_parser=tool_parser_named(arguments.tool_call_parser),
            reasoning_parser=reasoning_parser_named(arguments.reasoning_parser),
            is_access_logged=False,  # Ray logs each request itself
        )
        quiet_libraries()
        logging.getLogger("specdec").setLevel(logging.INFO)
        self._llm = AsyncLLM(arguments.model, **arguments.of_llm)
        if arguments.chat_template is not None:
            set_template(self._llm, read_template(arguments.chat_template))
        self._settings = settings

    def __serve_build_asgi_app__(self) -> FastAPI:
        app = create_app(self._llm, self._settings)
        serving, llm = app.router.lifespan_context, self._llm

        @asynccontextmanager
        async def life(app: FastAPI) -> AsyncIterator[None]:
            exporting = asyncio.create_task(export_metrics(llm.get_metrics))
            try:
                async with serving(app):
                    yield
            finally:
                exporting.cancel()

        app.router.lifespan_context = life
        return app

    def check_health(self) -> None:
        """Health check for Ray, which replaces replicas whose engine does not run.

        Raises:
            RuntimeError: if the engine does not run.
        """
        if not self._llm.is_running:
            raise RuntimeError("the engine has failed; the replica's log says why")
