"""`/`, a chat page, and `/docs`, the API reference: static files of this server, without external resources."""

from __future__ import annotations

import os
from pathlib import Path

import fastapi_offline
from fastapi import FastAPI, Response
from fastapi.responses import FileResponse
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from specdec_server.settings import Settings

_HERE = Path(__file__).parent.parent
_PAGE, _REFERENCE = _HERE / "page", _HERE / "reference"
_SWAGGER = Path(fastapi_offline.__file__).parent / "static"
_HEADERS = {
    # `data:` is for the images in Swagger's style sheet.
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class _Files(StaticFiles):
    """A folder whose files are sent with headers that block other origins."""

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(_HEADERS)
        return response


def add_pages(app: FastAPI, settings: Settings) -> None:
    """Add the enabled pages and their files."""
    if settings.is_page_served:
        _add_page(app, "/", _PAGE / "index.html")
        app.mount("/page", _Files(directory=_PAGE))
    if settings.are_docs_served:
        _add_page(app, "/docs", _REFERENCE / "index.html")
        app.mount("/docs/swagger", _Files(directory=_SWAGGER))
        app.mount("/docs", _Files(directory=_REFERENCE))


def page_paths(*, has_page: bool, has_docs: bool) -> frozenset[str]:
    """Return the paths of pages and their files, which are static and reveal nothing about the server."""
    paths: set[str] = set()
    if has_page:
        paths |= {"/", *_paths("/page", _PAGE)}
    if has_docs:
        paths |= {"/docs", *_paths("/docs", _REFERENCE), *_paths("/docs/swagger", _SWAGGER)}
    return frozenset(paths)


def _add_page(app: FastAPI, path: str, file: Path) -> None:
    async def page() -> Response:
        return FileResponse(file, headers=_HEADERS)

    app.add_api_route(path, page, methods=["GET", "HEAD"], include_in_schema=False)


def _paths(prefix: str, folder: Path) -> set[str]:
    return {f"{prefix}/{file.relative_to(folder).as_posix()}" for file in folder.rglob("*") if file.is_file()}
