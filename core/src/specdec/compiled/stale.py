"""Drops cached compiled code that was made from other sources than the installed ones.

numba checks only the file of a function, not the files of the functions it calls. After an upgrade or an edit, code compiled
from an older callee would still run.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

from numba import config
from numba.core.caching import _CacheLocator

from specdec.folders import compiled_folder

_STAMP = "sources.sha256"


def kept_folder(folder: Path) -> Path:
    """Return where numba keeps what it compiles for the modules of a folder."""
    if not config.CACHE_DIR:  # type: ignore[attr-defined]  # made from the environment; numba was loaded before specdec
        config.CACHE_DIR = str(compiled_folder())  # type: ignore[attr-defined]  # ditto
    file = str(folder / "__init__.py")
    name: str = _CacheLocator.get_suitable_cache_subpath(file)  # type: ignore[no-untyped-call]  # not annotated
    return Path(config.CACHE_DIR) / name  # type: ignore[attr-defined]  # ditto


def drop_stale(*folders: Path) -> None:
    """Delete numba's cache for the modules of some folders, unless it was made from exactly their current sources.

    Does nothing if the cache cannot be written; numba then keeps its files elsewhere, by path and time.

    Args:
        folders: packages whose functions call each other.
    """
    digest = hashlib.sha256()
    for folder in folders:
        for file in sorted(folder.glob("*.py")):
            digest.update(file.read_bytes())
    for folder in folders:
        kept = kept_folder(folder)
        stamp = kept / _STAMP
        with suppress(OSError):
            if stamp.is_file() and stamp.read_text() == digest.hexdigest():
                continue
            kept.mkdir(parents=True, exist_ok=True)
            for file in (*kept.glob("*.nbi"), *kept.glob("*.nbc")):
                file.unlink(missing_ok=True)
            stamp.write_text(digest.hexdigest())
