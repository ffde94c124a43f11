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
from specdec_server.record import CURRENT_RECORD

_KINDS = {401: "authentication_error", 404: "not_found_error"}
_SHUT_DOWN = "the server is being shut down: send the request again in a moment, or to another server"
_CLASS = re.compile(r"^[A-Z]\w*: |(?<=: )[A-Z][a-z]+[A-Z]\w*: ", re.MULTILINE)
"""A class of ours that a message is about, which clients do not know."""
_NAMED = re.compile(r"'(\w+)' = ")
"""Prefix of messages about a parameter."""
_MOST_CHARACTERS = 2000


class ApiError(Exception):
    """An error that is returned to the client.

    Args:
        message: what is wrong, and what to do.
        status: HTTP status.
        param: the wrong field, if there is one.
        code: machine-readable code.
        headers: of the response.
        reason: the message for the log, where it is not to quote the client; None for the same.
    """

    def __init__(
        self,
        message: str,
        status: int = 400,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code, self.headers = status, param, code, headers
        self.reason = reason


def error_body(error: Exception) -> dict[str, Any]:
    """Return the response body for an error, and record its reason for the log."""
    if isinstance(error, EngineError) and error.__cause__ is None:
        error = ApiError(_SHUT_DOWN, 503, code="shutting_down")
    status, message = status_of(error), str(error)
    named = None
    if isinstance(error, ConfigError):
        message = _CLASS.sub("", message)
        named = _NAMED.match(message)
    if len(message) > _MOST_CHARACTERS:  # it quotes a value of the client
        message = f"{message[:_MOST_CHARACTERS]}..."
    if (record := CURRENT_RECORD.get()) is not None:
        record.reason = getattr(error, "reason", None) or message
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "internal_error")
    return {
        "error": {
            "message": message or "the request cannot be answered; the server's log tells more",
            "type": kind,
            "param": named[1] if named else getattr(error, "param", None),
            "code": getattr(error, "code", None) or status,
        }
    }


def add_error_handlers(app: FastAPI) -> None:
    """Make an app answer every error in the same format."""

    async def answer(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse(error_body(error), status_of(error), getattr(error, "headers", None))

    async def answer_invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        return await answer(request, ApiError(f"{request.url.path}: {where}: {first['msg']}"))

    async def answer_http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        api_error = ApiError(f"{request.url.path}: {error.detail}", error.status_code, headers=error.headers)
        return await answer(request, api_error)

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
