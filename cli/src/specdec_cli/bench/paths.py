"""Files that a command reads and writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from specdec import ConfigError
from specdec_cli.bench.lines import text_lines


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


def check_file(path: Path | None) -> None:
    """Raise for a file of prompts that cannot be read, before anything is loaded.

    Raises:
        ConfigError: naming the file.
    """
    if path is not None:
        next(text_lines(path), None)
