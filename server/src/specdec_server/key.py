"""Who may come in."""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from specdec_server.errors import ApiError, error_body

_OPEN = frozenset({"/health", "/ping", "/version", "/metrics"})
"""What is told to everybody: whether the server is well, for whoever watches it."""


class KeyCheck:
    """Lets only those in who send the key, before anything else of a request is read.

    Args:
        app: what they come to.
        keys: what `Authorization: Bearer ...` must say; one of them.
        pages: paths of static files, which are open as well: what they then ask for is not.
    """

    def __init__(self, app: ASGIApp, keys: tuple[str, ...], pages: frozenset[str] = frozenset()) -> None:
        self._app, self._keys = app, [key.encode() for key in keys]
        self._open = _OPEN | pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http" or _path(scope) in self._open or self._is_known(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        error = ApiError(
            "the key is missing or wrong: send 'Authorization: Bearer KEY'", 401, code="invalid_api_key"
        )
        answer = JSONResponse(error_body(error), error.status, {"WWW-Authenticate": "Bearer"})
        await answer(scope, receive, send)

    def _is_known(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        # Headers are read as Latin-1, whatever bytes they have.
        sent = given.strip().encode("latin-1")
        known = [hmac.compare_digest(sent, key) for key in self._keys]  # all of them, in the same time
        return scheme.lower() == "bearer" and any(known)


def _path(scope: Scope) -> str:
    """Return the path of a request without what a proxy has put before it."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path.removeprefix(root) if root and path.startswith(f"{root}/") else path
