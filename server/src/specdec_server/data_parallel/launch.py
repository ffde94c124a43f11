"""Starts several engines and serves them at one address until a signal."""

from __future__ import annotations

import asyncio
import logging
import pickle
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from math import ceil
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any

import typer
import uvicorn
from starlette.types import ASGIApp

from specdec import ConfigError
from specdec_server.body import BodyLimit
from specdec_server.data_parallel.engine import EngineEndedError, EngineProcess, environment_of
from specdec_server.data_parallel.engines import Engines
from specdec_server.data_parallel.rank import DataParallelRank
from specdec_server.data_parallel.refusals import Refusals
from specdec_server.data_parallel.relay import Relay
from specdec_server.http import Http
from specdec_server.key import KeyCheck
from specdec_server.limits import Limits
from specdec_server.logs import set_up_logs
from specdec_server.routes.page import page_paths

logger = logging.getLogger("specdec")

_DIVIDED = ("max_queued_requests", "max_stored_responses")
"""Limits that are divided among the engines."""


@dataclass(frozen=True)
class EngineTask:
    """Task of an engine process, as arguments of `specdec_server.launch.launch`."""

    words: Sequence[str]
    http: Http
    options: Mapping[str, Any]


def launch_engines(words: Sequence[str], http: Http, num_engines: int, **options: Any) -> None:
    """Run a server with several engines. The address is bound before anything is loaded.

    Args:
        words: as for `launch`.
        http: where to listen.
        num_engines: number of processes, each with its own model and cache.
        **options: as for `launch`.

    Raises:
        ConfigError: for errors that the user can fix.
        typer.Exit: if an engine ends before it is ready; the engine has reported the reason.
    """
    settings = options["settings"]
    limits = Limits(**{field.name: settings[field.name] for field in fields(Limits)})
    shares = {name: ceil(settings[name] / num_engines) for name in _DIVIDED}
    set_up_logs(http.log_level)
    with http.bound() as listener, TemporaryDirectory(prefix="specdec-") as name:
        folder, engines = Path(name), []
        for index, rank in enumerate(DataParallelRank.each(num_engines)):
            path = folder / f"{index}.sock"
            inner = replace(http, socket_path=str(path), uds=None, ssl_keyfile=None, ssl_certfile=None)
            own = {"settings": {**settings, **shares}, "rank": rank}
            task = pickle.dumps(EngineTask(words, inner, {**options, **own}))
            command = [sys.executable, "-P", "-m", "specdec_server.data_parallel.child"]
            engines.append(EngineProcess(index, command, task, path, environment_of(num_engines)))
        front = Engines(engines)
        pages = page_paths(has_page=settings["is_page_served"], has_docs=settings["are_docs_served"])
        app = _app(front, limits, settings["api_key"], pages, is_logged=settings["is_access_logged"])
        config = replace(http, root_path="").config(app, limits, has_lifespan=False)
        with suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            try:
                runner.run(_serve(FrontServer(config, front, folder), http, listener))
            except EngineEndedError as error:
                if error.code < 0:
                    raise ConfigError(f"{error}: memory may not suffice for {num_engines} engines") from None
                raise typer.Exit(error.code or 1) from None


def _app(
    engines: Engines,
    limits: Limits,
    api_key: tuple[str, ...] | None,
    pages: frozenset[str],
    *,
    is_logged: bool,
) -> ASGIApp:
    app: ASGIApp = BodyLimit(Relay(engines), limits)
    if api_key is not None:
        app = KeyCheck(app, api_key, pages)
    return Refusals(app, by_key=len(api_key or ()) > 1) if is_logged else app


async def _serve(server: FrontServer, http: Http, listener: socket.socket) -> None:
    try:
        await server.engines.start()
        listener.listen(server.config.backlog)
        logger.info("serving %d engines at %s", len(server.engines.all), http.url(listener))
        await server.serve([listener])
    finally:
        await server.engines.stop()


class FrontServer(uvicorn.Server):
    """A server that stops the engines, whose requests have time to finish, before it closes its connections.

    Args:
        config: of uvicorn.
        engines: the served engines.
        folder: of their sockets; removed at the end of shutdown, since a signal may then end the process at once.
    """

    def __init__(self, config: uvicorn.Config, engines: Engines, folder: Path) -> None:
        super().__init__(config)
        self.engines, self._folder = engines, folder

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections, stop the engines, then close all connections."""
        for server in self.servers:
            server.close()
        await self.engines.stop()
        await super().shutdown(sockets)
        rmtree(self._folder, ignore_errors=True)
