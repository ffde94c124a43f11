"""Files that pass for GGUF models, and a hub that cannot be reached."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from specdec.config import hub

MAGIC = b"GGUF"


def write(folder: Path, *names: str) -> Path:
    """Write files that begin as GGUF files do; returns their folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(MAGIC + name.encode())
    return folder


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A hub that no connection leads to."""

    def refuse(*_: object, **__: object) -> socket.socket:
        raise OSError("no network")

    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket, "create_connection", refuse)
    hub.is_hub_reachable.cache_clear()
    yield
    hub.is_hub_reachable.cache_clear()
