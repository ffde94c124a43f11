"""Names libraries that are newer than those that tests have seen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import metadata

from specdec.config import notice
from specdec.errors import ModelError

TESTED = {"torch": (2, 14), "transformers": (5, 24)}
"""The newest version of each that `make test-newest` has seen."""
version = cache(metadata.version)  # which reads files


@contextmanager
def newer_versions_named() -> Iterator[None]:
    """Log once which libraries are newer than the tested ones, and name them in errors that are raised within.

    Raises:
        ModelError: those that are raised within, with the versions.
    """
    newer = _newer()
    if newer:
        notice("newer versions", f"{newer}: if something fails, try that one")
    try:
        yield
    except ModelError as error:
        if newer:
            raise ModelError(f"{error} ({newer})") from error
        raise
    except Exception as error:
        if newer:
            error.add_note(newer)
        raise


def _newer() -> str:
    found = []
    for name, tested in TESTED.items():
        installed = version(name)
        release = re.match(r"(\d+)\.(\d+)", installed)
        if release is not None and (int(release[1]), int(release[2])) > tested:
            found.append(f"{name} {installed} is newer than the newest tested, {tested[0]}.{tested[1]}")
    return ", ".join(found)
