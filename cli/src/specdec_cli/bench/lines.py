"""Reads lines of text and of JSON from files, and reports invalid lines."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specdec import ConfigError

_MOST_CHARACTERS = 2**24
"""Of a line; a compressed file could hold one that fills the memory."""


def text_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the location (file and number) of each line and its text; blank lines are skipped, `.gz` is decompressed.

    A byte order mark at the beginning is no part of the text.

    Raises:
        ConfigError: naming the file that cannot be read.
    """
    open_file = gzip.open if path.suffix == ".gz" else open
    try:
        with open_file(os.path.expanduser(path), "rt", encoding="utf-8-sig") as lines:
            for number, line in enumerate(iter(lambda: lines.readline(_MOST_CHARACTERS + 1), ""), 1):
                place = f"{path}, line {number}"
                if len(line) > _MOST_CHARACTERS:
                    raise ConfigError(f"{place}: has more than {_MOST_CHARACTERS} characters")
                if line.strip():
                    yield place, line
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason}") from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read {str(path)!r}: {reason}") from None


def json_lines(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the location of each line of a file and its value, as `text_lines` does.

    Raises:
        ConfigError: naming the file, and the number of the line that is not JSON.
    """
    for place, line in text_lines(path):
        yield place, parsed(line, place)


def parsed(line: str, place: str) -> Any:
    """Return the value of a line of JSON.

    Raises:
        ConfigError: naming the place, if it is not JSON.
    """
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{place}: not JSON: {error.msg} (column {error.colno})") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, lists thousands deep
        raise ConfigError(f"{place}: cannot be read: {error}") from None
