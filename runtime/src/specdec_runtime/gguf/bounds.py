"""Checks that the counts and lengths in a GGUF file fit its size, because readers loop over them unchecked."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from specdec import ModelError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MOST_FIELDS = _MOST_TENSORS = 2**16
_MOST_ELEMENTS = 2**22
"""Of all arrays together: readers take hundreds of bytes for each. The largest vocabularies have about 1.5 million."""
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of each scalar type of a field."""
_STRING, _ARRAY = 8, 9
_MOST_DIMENSIONS = 8


def check_bounds(file: Path) -> None:
    """Read the fields and the list of tensors of a file, but no values.

    Raises:
        ModelError: if it is not a GGUF file, or if it says more than its size can hold.
        OSError: if it cannot be read.
    """
    try:
        with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            _Header(content).read()
    except (ValueError, struct.error) as error:  # mmap refuses an empty file
        raise ModelError(f"{file} is not a GGUF file, or is damaged ({error}): fetch it again") from None


class _Header:
    """The part of a file before its tensors' data."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content = content
        self._at = len(_MAGIC)
        self._num_elements = 0

    def read(self) -> None:
        """Read all of it; raises ValueError where it does not fit."""
        if self._content[: len(_MAGIC)] != _MAGIC:
            raise ValueError("it does not begin with GGUF")
        version = self._number("I")
        if version not in _VERSIONS:
            raise ValueError(f"version {version} of the format is not read")
        num_tensors, num_fields = self._number("Q"), self._number("Q")
        for name, count, most in (
            ("tensors", num_tensors, _MOST_TENSORS),
            ("fields", num_fields, _MOST_FIELDS),
        ):
            if count > most:
                raise ValueError(f"it says that it has {count} {name}")
        for _ in range(num_fields):
            self._skip(self._number("Q"))
            self._value(self._number("I"))
        for _ in range(num_tensors):
            self._skip(self._number("Q"))
            num_dimensions = self._number("I")
            if num_dimensions > _MOST_DIMENSIONS:
                raise ValueError(f"it says that a tensor has {num_dimensions} dimensions")
            self._skip(8 * num_dimensions + 4 + 8)  # its shape, type and offset

    def _value(self, kind: int) -> None:
        if kind == _STRING:
            self._skip(self._number("Q"))
        elif kind == _ARRAY:
            self._array(self._number("I"), self._number("Q"))
        else:
            self._skip(self._size(kind))

    def _array(self, kind: int, count: int) -> None:
        self._num_elements += count
        if self._num_elements > _MOST_ELEMENTS:
            raise ValueError(f"it says that an array has {count} elements")
        if kind == _STRING:
            for _ in range(count):
                self._skip(self._number("Q"))
        else:
            self._skip(count * self._size(kind))

    def _size(self, kind: int) -> int:
        if kind not in _SIZES:
            raise ValueError(f"it has a field of type {kind}")
        return _SIZES[kind]

    def _number(self, form: str) -> int:
        start = self._at
        self._skip(struct.calcsize("<" + form))
        number: int = struct.unpack_from("<" + form, self._content, start)[0]
        return number

    def _skip(self, num_bytes: int) -> None:
        self._at += num_bytes
        if self._at > len(self._content):
            raise ValueError(f"it ends within its header, at {len(self._content)} bytes")
