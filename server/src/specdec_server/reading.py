"""Reads JSON bodies: small ones at once, large ones outside the event loop."""

from __future__ import annotations

import re
from typing import Any, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel, ValidationError

from specdec_server.errors import ApiError
from specdec_server.json_text import parsed
from specdec_server.mistakes import explained
from specdec_server.service import Served

Model = TypeVar("Model", bound=BaseModel)
_SMALL_BYTES = 16 * 1024
"""Bodies up to this length are read at once; that takes less than two milliseconds."""
_JSON = re.compile(r"application/([\w.-]+\+)?json")
_NO_OBJECT = "the body is not a JSON object: send one, with the header 'Content-Type: application/json'"
_ENCODED = "the body has Content-Encoding {encoding!r}, and only bodies that are not compressed are read: send it as it is"


def reading(kind: type[BaseModel]) -> Any:
    """Return a dependency that gives the body of a request.

    Args:
        kind: the body's type.
    """

    async def read_body(request: Request, service: Served) -> BaseModel:
        if not _JSON.fullmatch(request.headers.get("content-type", "").partition(";")[0].strip().lower()):
            raise ApiError(_NO_OBJECT)
        encoding = request.headers.get("content-encoding", "identity")
        if encoding.strip().lower() != "identity":
            raise ApiError(_ENCODED.format(encoding=encoding), 415)
        raw, path = await request.body(), request.url.path
        if not raw:
            raise ApiError(_NO_OBJECT)
        if len(raw) <= _SMALL_BYTES:
            return read(raw, kind, path)
        return await service.prepared(lambda: read(raw, kind, path))

    return Depends(read_body)


def read(raw: bytes, kind: type[Model], path: str) -> Model:
    """Return a JSON body as an object of a type.

    Args:
        raw: the body.
        kind: its type.
        path: of the request, for error messages.

    Raises:
        ApiError: that says what is wrong.
    """
    value = parsed(raw)
    if not isinstance(value, dict):
        raise ApiError(_NO_OBJECT)
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        message, reason, param = explained(path, kind, error, value)
        raise ApiError(message, param=param, reason=reason) from None
