"""`/` and `/docs`: what is served, with which headers, to whom, and where from."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from servercheck.served import Served

from specdec_server import Settings
from specdec_server.key import KeyCheck
from specdec_server.routes.page import add_pages, page_paths

PACKAGE = Path(str(files("specdec_server")))
PAGE_FILES = sorted(file for folder in ("page", "reference") for file in (PACKAGE / folder).iterdir())


def pages(key: str | None = None, **switches: bool) -> TestClient:
    """Return an application that has the pages only."""
    settings = Settings(model_names=("zoo",), api_key=key, **switches)  # type: ignore[arg-type]
    schema = "/openapi.json" if settings.are_docs_served else None
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=schema)
    add_pages(app, settings)
    if settings.api_keys:
        paths = page_paths(has_page=settings.is_page_served, has_docs=settings.are_docs_served)
        app.add_middleware(KeyCheck, keys=settings.api_keys, pages=paths)
    return TestClient(app)


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_brings_all_that_it_needs(path: str) -> None:
    client = pages()
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    wanted = re.findall(r'(?:src|href)="([^"#]+)"', answer.text)
    assert len(wanted) >= 4
    for address in wanted:
        assert not re.match(r"[a-z]+:|//|/", address), "an address is relative, and of this server"
        assert client.get(f"/{address}").status_code == 200, address


@pytest.mark.parametrize("file", PAGE_FILES, ids=lambda file: file.name)
def test_scripts_and_styles_are_files_and_of_this_server(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert not re.search(r"(https?:)?//(?!www\.w3\.org/2000/svg)[\w-]+\.[\w-]+", text), (
        "nothing of other servers"
    )
    if file.suffix == ".html":
        assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon[a-z]+=", text) == [], "no inline code"
    if file.suffix == ".js":
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
        )
        for imported in re.findall(r'^import .*? from "(.*?)";', text, re.M):
            assert (file.parent / imported).is_file()


@pytest.mark.parametrize(
    "path", ["/", "/page/main.js", "/docs", "/docs/reference.js", "/docs/swagger/swagger-ui.css"]
)
def test_headers_keep_other_origins_out(path: str) -> None:
    headers = pages().get(path).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'self'"
    assert "script-src" not in policy
    assert "style-src" not in policy
    assert policy["frame-ancestors"] == policy["form-action"] == policy["base-uri"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def test_switches_turn_the_pages_off() -> None:
    without_page = pages(is_page_served=False)
    assert without_page.get("/").status_code == without_page.get("/page/main.js").status_code == 404
    assert without_page.get("/docs").status_code == without_page.get("/openapi.json").status_code == 200
    without_docs = pages(are_docs_served=False)
    assert without_docs.get("/").status_code == 200
    for path in ("/docs", "/docs/reference.js", "/openapi.json"):
        assert without_docs.get(path).status_code == 404


def test_with_a_key_files_are_open_and_nothing_else() -> None:
    client = pages("sesame")
    for path in ("/", "/page/main.js", "/docs", "/docs/swagger/swagger-ui-bundle.js"):
        assert client.get(path).status_code == 200
    for path in ("/openapi.json", "/page/../openapi.json", "/page/", "/page/%2e%2e/openapi.json", "/docs/"):
        assert client.get(path).status_code == 401, path
    assert client.get("/openapi.json", headers={"Authorization": "Bearer sesame"}).status_code == 200
    closed = pages("sesame", is_page_served=False, are_docs_served=False)
    assert closed.get("/").status_code == closed.get("/docs").status_code == 401


@pytest.mark.parametrize(
    "path", ["/page/../app.py", "/page/%2e%2e/app.py", "/page/..%2fapp.py", "/docs/../key.py"]
)
def test_nothing_outside_the_folders_is_served(path: str) -> None:
    assert pages().get(path).status_code == 404


def test_the_server_has_the_pages_and_says_what_it_serves(served: Served) -> None:
    status, text = served.ask("/")
    assert status == 200
    assert "<title>specdec</title>" in text
    assert served.ask("/server_info") == (
        200,
        {
            "version": "0.1.0",
            "model": "zoo",
            "root": "zoo",
            "max_model_len": 1024,
            "dtype": "float32",
            "device": "cpu",
            "has_docs": True,
            "has_chat_template": True,
            "speculative_config": {
                "method": "ngram",
                "num_speculative_tokens": 4,
                "rejection_sample_method": "strict",
            },
        },
    )
    assert "/server_info" in served.ask("/openapi.json")[1]["paths"]
