"""Tells which files of a folder are opened, by Python and by compiled code."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_OPEN_OR_READ = 0x20 | 0x01
_EVENT = struct.Struct("iIII")
_seen: list[str] | None = None


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if _seen is not None and event == "open" and isinstance(arguments[0], str | bytes):
        _seen.append(os.fsdecode(arguments[0]))


sys.addaudithook(_hear)  # cannot be taken back


@contextmanager
def files_opened_in(folder: Path) -> Iterator[list[str]]:
    """Fill the list with the names of files directly in a folder that are opened meanwhile, under whatever name."""
    global _seen
    found, _seen = list[str](), list[str]()
    system = ctypes.CDLL(None, use_errno=True)
    watch = system.inotify_init1(os.O_NONBLOCK)
    assert watch >= 0
    assert system.inotify_add_watch(watch, os.fsencode(folder), _OPEN_OR_READ) >= 0
    try:
        yield found
    finally:
        heard, _seen = _seen, None
        found += _names(watch)
        os.close(watch)
        home = os.path.realpath(folder) + os.sep
        found += [path for path in map(os.path.realpath, heard) if path.startswith(home)]


def _names(watch: int) -> Iterator[str]:
    while True:
        try:
            data = os.read(watch, 2**16)
        except BlockingIOError:
            return
        while data:
            *_, length = _EVENT.unpack_from(data)
            end = _EVENT.size + length
            if name := data[_EVENT.size : end].rstrip(b"\0").decode():  # else it is the folder itself
                yield name
            data = data[end:]
