"""Weights that are shipped compressed, unpacked once."""

from __future__ import annotations

import atexit
import lzma
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from specdec_zoo.manifest import manifest

WEIGHTS = "model.safetensors"


def unpacked(folder: Path) -> Path:
    """Return the folder of an artefact with its weights as published: itself, or a copy in the cache folder.

    The copy is made once (a second); where the cache cannot be written, it is made anew in each process.
    """
    if not (folder / f"{WEIGHTS}.xz").is_file():
        return folder
    digest = manifest()["artefacts"][folder.name]["files"][WEIGHTS]["sha256"]
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    root = Path(os.environ.get("SPECDEC_CACHE") or f"{home}/specdec").expanduser() / "zoo"
    kept = root / f"{folder.name}-{digest[:16]}"
    if (kept / WEIGHTS).is_file():
        return kept
    try:
        root.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=".", dir=root))
    except (OSError, RuntimeError):  # it cannot be written, or the user has no home
        return _of_this_process(folder)
    try:
        _unpack(folder, made)
        made.rename(kept)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        if not (kept / WEIGHTS).is_file():  # else another process was faster
            return _of_this_process(folder)
    return kept


@cache
def _of_this_process(folder: Path) -> Path:
    made = Path(tempfile.mkdtemp(prefix="specdec-zoo-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    _unpack(folder, made)
    return made


def _unpack(folder: Path, into: Path) -> None:
    """Write the files of an artefact, its weights as published."""
    into.chmod(0o755)
    for file in folder.iterdir():
        if file.name == f"{WEIGHTS}.xz":
            with lzma.open(file) as packed, (into / WEIGHTS).open("wb") as out:
                shutil.copyfileobj(packed, out, 1 << 20)
        else:
            shutil.copyfile(file, into / file.name)
