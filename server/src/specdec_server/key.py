"""Bearer-token middleware."""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from specdec_server.errors import ApiError, error_body

OPEN = frozenset({"/health", "/ping", "/version", "/metrics"})
"""Paths that need no key, for monitoring."""


class KeyCheck:
    """Middleware that rejects requests without a valid key before it reads the body.

    Args:
        app: the wrapped application.
        keys: accepted keys in `Authorization: Bearer ...`.
        pages: paths of static files, which need no key; the requests that these pages send do.
    """

    def __init__(self, app: ASGIApp, keys: tuple[str, ...], pages: frozenset[str] = frozenset()) -> None:
        self._app, self._keys = app, [key.encode() for key in keys]
        self._open = OPEN | pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or reject a request."""
        if scope["type"] != "http" or path_of(scope) in self._open or self._is_known(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        error = ApiError(
            "the key is missing or wrong: send 'Authorization: Bearer KEY'", 401, code="invalid_api_key"
        )
        answer = JSONResponse(error_body(error), error.status, {"WWW-Authenticate": "Bearer"})
        await answer(scope, receive, send)

    def _is_known(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        # Headers are decoded as Latin-1, whatever their bytes.
        sent = given.strip().encode("latin-1")
        known = [hmac.compare_digest(sent, key) for key in self._keys]  # all keys, in constant time
        return scheme.lower() == "bearer" and any(known)


def path_of(scope: Scope) -> str:
    """Return the path of a request without the proxy's root path."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path.removeprefix(root) if root and path.startswith(f"{root}/") else path
