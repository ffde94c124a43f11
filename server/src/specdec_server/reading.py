"""Reads JSON bodies: small ones at once, large ones outside the event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, SkipValidation, ValidationError

from specdec_server.errors import NO_OBJECT, ApiError
from specdec_server.json_text import parsed
from specdec_server.mistakes import explained
from specdec_server.service import Served

Model = TypeVar("Model", bound=BaseModel)
_SMALL_BYTES = 16 * 1024
"""Bodies up to this length are read at once; that takes less than two milliseconds."""


class _Json(bytes):
    """A body whose header says that it is JSON."""


class _Unread(Request):
    async def json(self) -> _Json:
        return _Json(await self.body())


class BodyRoute(APIRoute):
    """A route that leaves reading the body to the dependency `reading`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of a request."""
        handle = super().get_route_handler()

        async def handle_unread(request: Request) -> Response:
            return await handle(_Unread(request.scope, request.receive))

        return handle_unread


def reading(kind: type[BaseModel]) -> Any:
    """Return a dependency that gives the body of a request to a route of the class `BodyRoute`.

    Args:
        kind: the body's type.
    """

    async def read_body(request: Request, service: Served, raw: Any) -> BaseModel:
        if not isinstance(raw, _Json):
            raise ApiError(NO_OBJECT)
        path = request.url.path
        if len(raw) <= _SMALL_BYTES:
            return read(raw, kind, path)
        return await service.prepared(lambda: read(raw, kind, path))

    # FastAPI documents the type of the body but does not check it.
    read_body.__annotations__["raw"] = Annotated[kind, SkipValidation]
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
        raise ApiError(NO_OBJECT)
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        message, param = explained(path, kind, error, value)
        raise ApiError(message, param=param) from None
