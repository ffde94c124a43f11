"""The HTTP server."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from errno import ECONNREFUSED
from math import ceil
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import uvicorn

from specdec import ConfigError
from specdec_server.connection import limited_by
from specdec_server.limits import Limits

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from specdec_server.service import Service

logger = logging.getLogger("specdec")

LOG_LEVELS = ("debug", "info", "warning", "error")
GRACE_S = 5.0
"""Seconds that requests have to finish when the server shuts down."""


@dataclass(frozen=True)
class Http:
    """Where and how to listen.

    Raises:
        ConfigError: for an unknown log level, or a key without a certificate.
    """

    host: str
    port: int
    log_level: str
    root_path: str
    ssl_keyfile: str | None
    ssl_certfile: str | None
    socket_path: str | None = None
    """A Unix socket to listen at instead, for a process on the same machine that forwards client addresses."""
    uds: str | None = None
    """A Unix socket to listen at instead, for clients."""

    def __post_init__(self) -> None:
        if self.log_level not in LOG_LEVELS:
            raise ConfigError(f"--log-level {self.log_level!r} must be one of {', '.join(LOG_LEVELS)}")
        if self.ssl_keyfile and not self.ssl_certfile:
            raise ConfigError(
                f"--ssl-keyfile {self.ssl_keyfile!r} needs --ssl-certfile, the certificate of that key, as a PEM file"
            )

    def check(self) -> None:
        """Raise if the address cannot be bound now.

        Raises:
            ConfigError: as for `bound`.
        """
        with self.bound():
            pass

    @contextmanager
    def bound(self) -> Iterator[socket.socket]:
        """Open a socket bound to the address; a Unix socket is removed in the end.

        Raises:
            ConfigError: if it cannot be bound, or key and certificate cannot be used.
        """
        self._check_tls()
        path = self.socket_path or self.uds
        with self._at_path(path) if path is not None else self._at_port() as listener:
            try:
                yield listener
            finally:
                if path is not None:
                    Path(path).unlink(missing_ok=True)

    def _at_path(self, path: str) -> socket.socket:
        """Return a Unix socket bound to a path; one there at which nobody listens any more is replaced."""
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
            if other.connect_ex(path) == ECONNREFUSED and Path(path).is_socket():
                Path(path).unlink()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(path)
        except OSError as error:
            listener.close()
            raise ConfigError(
                f"--uds: cannot listen at {path!r} ({error.strerror or error}): choose another path"
            ) from None
        return listener

    def _at_port(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        # Without IPPROTO_TCP asyncio does not disable Nagle's algorithm, and each response waits 40 ms.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self.host, self.port))
        except OSError as error:
            listener.close()
            raise ConfigError(
                f"cannot listen at {self.host}:{self.port} ({error.strerror or error}): choose another --port or --host"
            ) from None
        return listener

    def url(self, listener: socket.socket) -> str:
        """Return the URL of a bound socket for clients."""
        if path := self.socket_path or self.uds:
            return f"unix:{path}"
        host, port = listener.getsockname()[:2]
        scheme = "https" if self.ssl_certfile else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def config(self, app: ASGIApp, limits: Limits, *, has_lifespan: bool = True) -> uvicorn.Config:
        """Return the uvicorn configuration for an application.

        Args:
            app: the application.
            limits: timeouts of connections.
            has_lifespan: whether the application receives lifespan events.

        Raises:
            ConfigError: if key and certificate cannot be used.
        """
        config = uvicorn.Config(
            app,
            log_level="debug" if self.log_level == "debug" else "warning",
            root_path=self.root_path,
            ssl_keyfile=self.ssl_keyfile,
            ssl_certfile=self.ssl_certfile,
            timeout_graceful_shutdown=int(GRACE_S),
            access_log=False,
            log_config=None,
            http=limited_by(limits),
            ws="none",
            timeout_keep_alive=ceil(limits.idle_timeout_s),
            lifespan="on" if has_lifespan else "off",
            forwarded_allow_ips=None if self.socket_path is None else "*",
        )
        try:
            config.load()
        except OSError as error:
            raise self._tls_error(error) from None
        return config

    def _check_tls(self) -> None:
        """Load certificate and key once, before the model is loaded; a password is asked for only afterwards."""
        if not self.ssl_certfile:
            return
        has_password = False

        def password() -> str:
            nonlocal has_password
            has_password = True
            return ""

        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                self.ssl_certfile, self.ssl_keyfile, password
            )
        except OSError as error:  # TLS errors are OSErrors
            if not has_password:
                raise self._tls_error(error) from None

    def _tls_error(self, error: OSError) -> ConfigError:
        given = ", ".join(map(repr, filter(None, (self.ssl_certfile, self.ssl_keyfile))))
        return ConfigError(
            f"--ssl-certfile, --ssl-keyfile: cannot use {given} ({error.strerror or error}): give a certificate and its key as "
            "PEM files"
        )


class HttpServer(uvicorn.Server):
    """A server that on shutdown waits for requests to finish, then ends the remaining ones with an error.

    Args:
        config: of uvicorn.
        service: the served engine.
        greeting: logged when it serves, and Ctrl-C ends it.
    """

    def __init__(self, config: uvicorn.Config, service: Service, greeting: str) -> None:
        super().__init__(config)
        self._service, self._greeting = service, greeting

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, and say so: signals are handled by now, and none can be lost."""
        await super().startup(sockets)
        if self.started:
            logger.info("%s", self._greeting)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections, wait, shut the engine down, then close all connections."""
        logger.info("shutting down; requests that run have %g s", GRACE_S)
        for server in self.servers:
            server.close()
        until = monotonic() + GRACE_S
        while self._service.is_busy and monotonic() < until and not self.force_exit:
            await asyncio.sleep(0.05)
        await asyncio.to_thread(self._service.close)
        await super().shutdown(sockets)
        if self.force_exit:  # uvicorn then leaves the lifespan's task to be cancelled, which logs a traceback
            await self.lifespan.shutdown()
