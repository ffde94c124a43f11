"""Errors as clients of the OpenAI interface expect them."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from specdec import ConfigError
from specdec_server.protocol import CompletionRequest
from specdec_server.protocol.chat import ChatRequest
from specdec_server.protocol.tokens import DetokenizeRequest, TokenizeRequest

_MODELS: dict[str, type[BaseModel]] = {
    "/v1/completions": CompletionRequest,
    "/v1/chat/completions": ChatRequest,
    "/tokenize": TokenizeRequest,
    "/detokenize": DetokenizeRequest,
}
_KINDS = {401: "authentication_error", 404: "not_found_error", 405: "not_found_error"}


class ApiError(Exception):
    """What a client did wrong.

    Args:
        message: what is wrong, and what to do.
        status: of HTTP.
        param: the field that is wrong, if it is one.
        code: a word for programs.
    """

    def __init__(
        self, message: str, status: int = 400, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code


def error_body(error: Exception) -> dict[str, Any]:
    """Return the body that tells of an error."""
    status = _status_of(error)
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "internal_error")
    return {
        "error": {
            "message": str(error) or type(error).__name__,
            "type": kind,
            "param": getattr(error, "param", None),
            "code": getattr(error, "code", None) or status,
        }
    }


def add_error_handlers(app: FastAPI) -> None:
    """Have every error of an app answered in the same form."""

    async def answer(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse(error_body(error), _status_of(error))

    async def answer_invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return await answer(request, _explained(request.url.path, error))

    async def answer_http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return await answer(request, ApiError(f"{request.url.path}: {error.detail}", error.status_code))

    for kind in (ApiError, ConfigError, RuntimeError):
        app.add_exception_handler(kind, answer)
    app.add_exception_handler(RequestValidationError, answer_invalid)
    app.add_exception_handler(HTTPException, answer_http)


def _status_of(error: Exception) -> int:
    if isinstance(error, ApiError):
        return error.status
    return 400 if isinstance(error, ValueError) else 500


def _explained(path: str, error: RequestValidationError) -> ApiError:
    """Return what is wrong with a body in one sentence, by its first mistake."""
    first = error.errors()[0]
    place = [str(part) for part in first["loc"] if part != "body"]
    if first["type"] == "json_invalid":
        return ApiError(f"the body is not JSON: {first.get('ctx', {}).get('error', first['msg'])}")
    if first["type"] == "extra_forbidden" and len(place) == 1 and path in _MODELS:
        fields = _MODELS[path].model_fields
        nearest = get_close_matches(place[0], fields, n=1)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"it knows {', '.join(sorted(fields))}"
        return ApiError(f"{path} knows no field {place[0]!r}: {hint}", param=place[0])
    field = ".".join(place[:1]) or "body"
    given = "" if first["type"] == "missing" else f" (got {str(first['input'])[:80]!r})"
    return ApiError(f"{'.'.join(place) or 'the body'}: {first['msg']}{given}", param=field)
