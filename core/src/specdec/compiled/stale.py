"""Drops compiled code that was made from other sources than those that are installed.

numba looks at the file of a function only, not at those of the functions it calls; after an upgrade, or an edit, code compiled
from an older callee would go on running.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

_STAMP = "sources.sha256"


def drop_stale(*folders: Path) -> None:
    """Delete what numba has kept for the modules of some folders, unless it was made from all their sources as they are.

    Does nothing where the folders cannot be written to: there numba keeps its files elsewhere, by path and time.

    Args:
        folders: packages whose functions call each other.
    """
    digest = hashlib.sha256()
    for folder in folders:
        for file in sorted(folder.glob("*.py")):
            digest.update(file.read_bytes())
    for folder in folders:
        kept = folder / "__pycache__"
        stamp = kept / _STAMP
        with suppress(OSError):
            if stamp.is_file() and stamp.read_text() == digest.hexdigest():
                continue
            kept.mkdir(exist_ok=True)
            for file in (*kept.glob("*.nbi"), *kept.glob("*.nbc")):
                file.unlink(missing_ok=True)
            stamp.write_text(digest.hexdigest())
