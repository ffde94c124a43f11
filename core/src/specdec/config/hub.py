"""The model hub: whether it can be reached, and the GGUF files of a repository."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

CONNECT_SECONDS = 5.0
"""Timeout for connecting to the hub."""
_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")


@cache
def is_hub_reachable() -> bool:
    """Return whether the hub can be reached; tried once per process.

    Without this check the client retries for half a minute for every requested file. Behind a proxy no connection is tried,
    because the proxy may reach hosts that this machine cannot.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    if any(os.environ.get(name) or os.environ.get(name.lower()) for name in _PROXIES):
        return True
    address = urlsplit(constants.ENDPOINT)
    port = address.port or (80 if address.scheme == "http" else 443)
    try:
        socket.create_connection((address.hostname or "", port), timeout=CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def offline_arguments(model: str) -> dict[str, bool]:
    """Return arguments for `from_pretrained` that disable downloads if the hub cannot be reached.

    Args:
        model: a directory, for which no arguments are needed, or a hub id.
    """
    return {} if Path(model).exists() or is_hub_reachable() else {"local_files_only": True}


def hub_ggufs(repository: str, revision: str | None) -> list[str]:
    """Return the names of the GGUF files of a repository; only cached ones if the hub cannot be reached.

    Raises:
        OSError: if neither the hub nor its cache has the repository.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        if is_hub_reachable():
            names = HfApi().list_repo_files(repository, revision=revision)
        else:
            folder = Path(snapshot_download(repository, revision=revision, local_files_only=True))
            names = [str(file.relative_to(folder)) for file in folder.rglob("*.gguf")]
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError) as error:
        raise OSError(_reason(error)) from error
    return sorted(name for name in names if name.endswith(".gguf"))


def hub_file(repository: str, name: str, revision: str | None) -> Path:
    """Return a file of a repository, downloaded into the hub's cache unless it is cached.

    Raises:
        OSError: if neither the hub nor its cache has it.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(
            hf_hub_download(repository, name, revision=revision, local_files_only=not is_hub_reachable())
        )
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError) as error:
        raise OSError(_reason(error)) from error


def _reason(error: Exception) -> str:
    """Return in one line why something is not available."""
    return str(error).strip().split("\n")[0] if is_hub_reachable() else "the hub cannot be reached"
