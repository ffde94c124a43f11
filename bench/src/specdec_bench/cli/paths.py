"""Files that a command writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from specdec import ConfigError


def check_folders(paths: Mapping[str, Path | None]) -> None:
    """Raise for a file that cannot be written because it has no folder, before anything is measured.

    Args:
        paths: by option; `-` is the standard output.

    Raises:
        ConfigError: naming the option and the folder.
    """
    for option, path in paths.items():
        if path is not None and str(path) != "-" and not path.parent.is_dir():
            raise ConfigError(f"{option}: there is no folder {str(path.parent)!r}")
