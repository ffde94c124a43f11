"""Middleware that checks the Host header, against web pages that reach a server without a key by DNS rebinding."""

from __future__ import annotations

import re
import socket
from contextlib import suppress
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from specdec_server.errors import ApiError, error_body
from specdec_server.key import OPEN, path_of

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(:\d*)?")
"""A name or an address, and a port."""


def names_of(host: str) -> tuple[str, ...]:
    """Return the names by which clients reach a server that listens at a host.

    Args:
        host: an address or a name.
    """
    return tuple({"localhost", host.lower(), socket.gethostname().lower()})


class HostCheck:
    """Middleware that rejects requests whose Host header is another site's name.

    A browser sends the name of the page's site, whatever address that name has. Addresses are always accepted: a page of
    another site never has this server's address as its name.

    Args:
        app: the wrapped application.
        names: accepted names, besides those that end with `.localhost`; `*` accepts all.
    """

    def __init__(self, app: ASGIApp, names: tuple[str, ...]) -> None:
        self._app, self._names = app, frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or reject a request."""
        if scope["type"] != "http" or path_of(scope) in OPEN or self._is_ours(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        error = ApiError(
            f"the Host header {Headers(scope=scope).get('host', '')!r:.100} is none of this server's names: set an API key, or "
            "name it in --allowed-hosts",
            403,
            code="host_not_allowed",
        )
        await JSONResponse(error_body(error), error.status)(scope, receive, send)

    def _is_ours(self, headers: Headers) -> bool:
        if "*" in self._names:
            return True
        given = _HOST.fullmatch(headers.get("host", "").strip().lower())
        if given is None:
            return False
        name = given[1].strip("[]").removesuffix(".")
        with suppress(ValueError):
            ip_address(name)
            return True
        return name in self._names or name.endswith(".localhost")
