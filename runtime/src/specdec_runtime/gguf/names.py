"""Resolves the name of a model to a GGUF file: the name is a file, a folder or a hub repository."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from specdec import ConfigError, ModelError
from specdec.config import HUB_ID, inside
from specdec_runtime.gguf.hub import hub_file, hub_ggufs

SUFFIX = ".gguf"
_MAGIC = b"GGUF"
_PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
_OTHER_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth")
_PROJECTORS = "mmproj"
"""Prefix of the files of a vision or audio tower, which are stored beside the model's own file."""


def local_gguf(name: str, gguf_file: str | None = None) -> Path | None:
    """Return the GGUF file that a path names, or None if there is none.

    A folder that also has weights in another format is not treated as GGUF unless `gguf_file` is given.

    Args:
        name: a file or a folder; None is returned for any other name.
        gguf_file: the file to use in a folder.

    Raises:
        ConfigError: if there is no such file, or if there are several candidates.
        ModelError: if the file is not GGUF, or is one part of a split file.
    """
    path = Path(os.path.expanduser(name))
    if os.path.isdir(path):
        file = _of_folder(path, gguf_file)
        return None if file is None else _checked(file)
    if not os.path.isfile(path):
        if name.endswith(SUFFIX) and (os.path.isdir(path.parent) or _hub_path(name) is None):
            raise ConfigError(f"there is no file {name!r}")
        return None
    if gguf_file is not None and gguf_file != path.name:
        raise ConfigError(
            f"LLM: gguf_file={gguf_file!r}: the model is the file {name!r} already, leave it out"
        )
    return _checked(path) if path.suffix == SUFFIX or _starts_right(path) else None


def hub_gguf(name: str, revision: str | None = None, gguf_file: str | None = None) -> Path | None:
    """Return the GGUF file of a hub repository, downloaded unless it is cached; None for any other name.

    Args:
        name: `owner/name/file.gguf`; or `owner/name`, which is searched if it contains `gguf` or `gguf_file` is given.
        revision: revision on the hub.
        gguf_file: the file to use in the repository.

    Raises:
        ConfigError: if there are several candidates.
        ModelError: if the repository or the file is not available, or if the file is one part of a split file.
    """
    found = _hub_path(name)
    if found is not None:
        repository, gguf_file = found
    elif "/" in name and HUB_ID.fullmatch(name) and (gguf_file is not None or "gguf" in name.lower()):
        repository = name
    else:
        return None
    try:
        if gguf_file is None:
            gguf_file = _only(hub_ggufs(repository, revision), repository)
        return None if gguf_file is None else _checked(hub_file(repository, gguf_file, revision))
    except OSError as error:
        what = repository if gguf_file is None else f"{repository}/{gguf_file}"
        raise ModelError(f"{what} cannot be fetched from a hub or read from its cache: {error}") from None


def _of_folder(folder: Path, gguf_file: str | None) -> Path | None:
    names = sorted(file.name for file in folder.glob("*" + SUFFIX))
    if gguf_file is not None:
        if not (folder / gguf_file).is_file():
            raise ConfigError(
                f"LLM: gguf_file={gguf_file!r}: {folder} has no such file; it has {', '.join(names) or 'no GGUF file'}"
            )
        return inside(folder, gguf_file, folder)
    if not names or any(True for pattern in _OTHER_WEIGHTS for _ in folder.glob(pattern)):
        return None
    chosen = _only(names, str(folder))
    return None if chosen is None else inside(folder, chosen, folder)


def _only(names: Sequence[str], where: str) -> str | None:
    """Return the only model among GGUF files; None if there is none."""
    models = [name for name in names if not Path(name).name.startswith(_PROJECTORS)]
    if len(models) > 1 and not _PART.search(models[0]):
        raise ConfigError(
            f"{where} has several GGUF files, give the path of one of them or gguf_file=: {', '.join(models)}"
        )
    return models[0] if models else None


def _checked(file: Path) -> Path:
    if _PART.search(file.name):
        raise ModelError(
            f"{file} is one of several parts, which transformers does not read: join them once with llama.cpp's "
            "`llama-gguf-split --merge FIRST_PART WHOLE.gguf`"
        )
    if not _starts_right(file):
        raise ModelError(f"{file} is not a GGUF file, or is damaged: fetch it again")
    return file


def _starts_right(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            return stream.read(len(_MAGIC)) == _MAGIC
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror}") from None


def _hub_path(name: str) -> tuple[str, str] | None:
    """Return the repository and file name of `owner/name/file.gguf`."""
    owner, _, rest = name.partition("/")
    repository, _, file = rest.partition("/")
    found = f"{owner}/{repository}"
    return (found, file) if file.endswith(SUFFIX) and HUB_ID.fullmatch(found) else None
