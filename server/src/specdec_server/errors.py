"""Errors in OpenAI's format."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from specdec import ConfigError, EngineError

_KINDS = {401: "authentication_error", 404: "not_found_error"}
_SHUT_DOWN = "the server is being shut down: send the request again in a moment, or to another server"
_NAMED = re.compile(r"^\w+: '(\w+)' = ")
"""Prefix of messages about a parameter."""


class ApiError(Exception):
    """An error that is returned to the client.

    Args:
        message: what is wrong, and what to do.
        status: HTTP status.
        param: the wrong field, if there is one.
        code: machine-readable code.
        headers: of the response.
    """

    def __init__(
        self,
        message: str,
        status: int = 400,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code, self.headers = status, param, code, headers


def error_body(error: Exception) -> dict[str, Any]:
    """Return the response body for an error."""
    if isinstance(error, EngineError) and error.__cause__ is None:
        error = ApiError(_SHUT_DOWN, 503, code="shutting_down")
    status = status_of(error)
    named = _NAMED.match(str(error)) if isinstance(error, ConfigError) else None
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "internal_error")
    return {
        "error": {
            "message": str(error) or type(error).__name__,
            "type": kind,
            "param": named[1] if named else getattr(error, "param", None),
            "code": getattr(error, "code", None) or status,
        }
    }


def add_error_handlers(app: FastAPI) -> None:
    """Make an app answer every error in the same format."""
    # Imports torch, which the front process of several engines does not need.
    from specdec_server.mistakes import explained

    async def answer(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse(error_body(error), status_of(error), getattr(error, "headers", None))

    async def answer_invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        message, param = explained(request.url.path, error)
        return await answer(request, ApiError(message, param=param))

    async def answer_http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        told = ApiError(f"{request.url.path}: {error.detail}", error.status_code, headers=error.headers)
        return await answer(request, told)

    for kind in (ApiError, ConfigError, EngineError):
        app.add_exception_handler(kind, answer)
    app.add_exception_handler(RequestValidationError, answer_invalid)
    app.add_exception_handler(HTTPException, answer_http)


def status_of(error: Exception) -> int:
    """Return the HTTP status for an error."""
    if isinstance(error, ApiError):
        return error.status
    if isinstance(error, EngineError):
        return 503
    return 400 if isinstance(error, ConfigError) else 500
