"""Files that a checkpoint has or names: all of them are in its own folder."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from specdec.config.hub import HUB_ID
from specdec.config.zoo import zoo_artefacts
from specdec.errors import ModelError

_OF_WINDOWS = re.compile(
    r"\\|^[a-z]:|(?:^|/)(?:con|prn|aux|nul|com\d|lpt\d)(?:\.[^/]*)?(?:/|$)", re.IGNORECASE
)
"""Separators, drives and devices of Windows: there the same name leads elsewhere."""
_LONGEST_PART = 255
"""In bytes, on the file systems in use."""
_TEMPLATES = "additional_chat_templates"


def inside(folder: Path, name: object, named_by: object) -> Path:
    """Return the path of a file that a checkpoint has or names; there need not be one.

    Args:
        folder: the checkpoint's. Links of a snapshot in a hub's cache may lead to the blobs of its repository.
        name: as it was read, of any type.
        named_by: the file that has the name, for messages.

    Raises:
        ModelError: for what is no name of a file, leads out of the folder once links are followed, or is no ordinary file.
    """
    problem = _problem_of(folder, name)
    if problem is not None:
        shown = ascii(name) if len(ascii(name)) <= 100 else f"{ascii(name)[:97]}..."
        raise ModelError(
            f"{named_by} names {shown}, which {problem}: what a checkpoint names is read from its own folder only; put a copy "
            "there, or fetch it again"
        )
    return folder / str(name)


def check_entries(folder: Path) -> None:
    """Check what a checkpoint's folder holds: libraries open files in it by fixed names, and follow links.

    Raises:
        ModelError: for a link that leads out of it, and for a pipe or device.
    """
    places = (folder, folder / _TEMPLATES)
    try:
        entries = [entry for place in places if place.is_dir() for entry in os.scandir(place)]
    except OSError as error:
        raise ModelError(f"{folder} cannot be read: {error.strerror}") from None
    for entry in entries:
        if entry.name == _TEMPLATES:  # of a folder what is in it is read
            inside(folder, f"{_TEMPLATES}/*", folder)
        elif not (entry.is_file(follow_symlinks=False) or os.path.isdir(entry)):
            inside(folder, os.path.relpath(entry.path, folder), folder)


def names_in(file: Path, config: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield the keys of a `config.json` or `tokenizer_config.json` that name files, with each name.

    A tokenizer's may be paths of the machine that it was made on: those of files that are not on this one do nothing.

    Args:
        file: where it was read.
        config: its content.
    """
    for key, value in config.items():
        if key == "transformers_weights" and value is not None:
            yield key, value
        elif key == "auto_map":
            yield from ((key, name) for one in _leaves(value) if (name := _code_of(one)) is not None)
        elif key.endswith(("_file", "_files")) and key != "special_tokens_map_file":  # which is not opened
            for name in (one for one in _leaves(value) if isinstance(one, str)):
                if _exists(name) and not os.path.realpath(name).startswith(
                    f"{os.path.realpath(file.parent)}{os.sep}"
                ):
                    yield key, os.path.abspath(name)
                elif _exists(file.parent / name):
                    yield key, name


def _problem_of(folder: Path, name: object) -> str | None:
    if not isinstance(name, str) or not name.isprintable() or name in ("", "."):
        return "is no name of a file"
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or _OF_WINDOWS.search(name):
        return "leads out of its folder, or does on other systems"
    if any(len(os.fsencode(part)) > _LONGEST_PART for part in path.parts):
        return "is too long for a file"
    home, found = os.path.realpath(folder), os.path.realpath(folder / name)
    homes = [home]
    if os.path.basename(os.path.dirname(home)) == "snapshots":
        homes.append(os.path.join(os.path.dirname(os.path.dirname(home)), "blobs"))
    zoo = zoo_artefacts()
    if zoo is not None and os.path.dirname(home) == zoo:  # its models share files
        homes.append(zoo)
    if not any(found.startswith(each.rstrip(os.sep) + os.sep) for each in homes):
        return f"leads to {found}, out of its folder"
    try:
        kind = os.stat(found).st_mode
    except OSError as error:  # whoever opens it says that it is not there
        return "is a link to itself" if error.errno == errno.ELOOP else None
    return None if stat.S_ISREG(kind) else "is no ordinary file"


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _leaves(one)
    elif value is not None:
        yield value


def _code_of(reference: object) -> object:
    """Return the file that an entry `module.Class` of an `auto_map` means; None if it is one of a hub repository."""
    if not isinstance(reference, str):
        return reference
    repository, separator, name = reference.rpartition("--")
    if not separator:
        return f"{name.rpartition('.')[0]}.py"
    is_on_hub = HUB_ID.fullmatch(repository) is not None and not _exists(repository)
    return None if is_on_hub else os.path.abspath(repository)


def _exists(path: str | Path) -> bool:
    return "\0" not in str(path) and os.path.exists(path)
