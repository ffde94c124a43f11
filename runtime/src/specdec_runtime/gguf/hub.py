"""The GGUF files of a hub repository."""

from __future__ import annotations

from pathlib import Path

from specdec.config import is_hub_reachable


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
