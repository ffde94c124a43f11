"""The cache file of responses: safetensors, with a header that identifies the tokenizer.

Tensors: `token_ids` `[T]` int32, all responses concatenated, oldest first, each preceded by the end of its prompt if
known; `lengths` `[N]` int64. Metadata: `format`,
`version`, `tokenizer` (fingerprint, empty without one) and `sha256` over these and both tensors. A file whose name ends in
`.xz` is compressed as a whole, to a sixth of its size.
"""

from __future__ import annotations

import errno
import hashlib
import json
import lzma
import os
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from specdec import ConfigError

FORMAT = "specdec-suffix-cache"
VERSION = "1"
COMPRESSED = ".xz"
_XZ = b"\xfd7zXZ\0"
"""First bytes of a compressed file."""
_UNREADABLE = (
    lzma.LZMAError, SafetensorError, ValueError, KeyError, TypeError, OverflowError, MemoryError, RecursionError,
)  # fmt: skip
_MOST_HEADER_BYTES = 2**16
"""A header has about 400."""
_MOST_BYTES, _MOST_EXPANSION = 2**24, 100
"""A compressed file may hold so many bytes, or so many times its own size if that is more."""
_MOST_DECODER_BYTES = 2**27
"""Memory of the decompressor, whose size a file chooses; ours need 64 MiB or less."""
REMEDY = "delete it, name another file, or make one with `specdec suffix warm`"


def write_responses(path: Path, responses: Iterable[Sequence[int]], tokenizer: str | None) -> None:
    """Write responses, oldest first; the file is replaced atomically.

    Args:
        path: the file; if its name ends in `.xz` it is compressed, which takes some seconds per million tokens.
        responses: token ids of each response.
        tokenizer: fingerprint of the tokenizer that the ids belong to.

    Raises:
        OSError: if it cannot be written.
    """
    arrays = [np.asarray(response, dtype=np.int32) for response in responses]
    lengths = np.array([len(each) for each in arrays], dtype=np.int64)
    token_ids = np.concatenate([*arrays, np.empty(0, dtype=np.int32)])
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        "tokenizer": tokenizer or "",
        "sha256": _digest(tokenizer or "", token_ids, lengths),
    }
    content = save({"token_ids": token_ids, "lengths": lengths}, metadata=metadata)
    if path.suffix == COMPRESSED:
        smaller = lzma.compress(content, preset=lzma.PRESET_EXTREME)
        if len(content) <= _most_bytes(
            len(smaller)
        ):  # else responses are much the same, and stay as they are
            content = smaller
    part = part_of(path)
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def part_of(path: Path) -> Path:
    """Return the file that is written before it replaces a cache file."""
    return path.with_name(f".{path.name}.{os.getpid()}")


def read_responses(path: Path, tokenizer: str | None, vocab_size: int) -> list[array[int]]:
    """Return the responses of a file, oldest first.

    Args:
        path: the file.
        tokenizer: expected fingerprint.
        vocab_size: upper bound of the ids.

    Raises:
        ConfigError: naming file and remedy, if it cannot be read, is damaged or not a cache file, or has another tokenizer.
    """
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):  # a pipe never ends, nor does /dev/zero
            raise OSError(errno.EINVAL, "Not a regular file")
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"suffix cache {str(path)!r} cannot be read: {error.strerror}; name a file that can"
        ) from error
    try:
        if content.startswith(_XZ):
            content = _decompressed(content)
        num_header_bytes = int.from_bytes(content[:8], "little")
        if num_header_bytes > _MOST_HEADER_BYTES:
            raise ValueError(f"its header would have {num_header_bytes} bytes")
        header = json.loads(content[8 : 8 + num_header_bytes])
        metadata, tensors = header["__metadata__"], load(content)
        if metadata["format"] != FORMAT:
            raise ValueError("another format")
        version = metadata["version"]
        # Everything after this depends on the version.
        if version == VERSION:
            owner, expected = metadata["tokenizer"], metadata["sha256"]
            token_ids, lengths = tensors["token_ids"], tensors["lengths"]
            if _digest(owner, token_ids, lengths) != expected:
                raise ValueError("the checksum differs")
    except _UNREADABLE as error:
        reason = str(error) or type(error).__name__
        raise ConfigError(
            f"{str(path)!r} is not a suffix cache, or is damaged ({reason}): {REMEDY}"
        ) from error
    if version != VERSION:
        _refuse(path, f"has version {version} of the format, this package reads version {VERSION}")
    if owner != (tokenizer or ""):
        _refuse(path, f"was made with {_named(owner)}, the target has {_named(tokenizer)}")
    if len(token_ids) and not 0 <= token_ids.min() <= token_ids.max() < vocab_size:
        _refuse(
            path,
            f"has token ids from {token_ids.min()} to {token_ids.max()}, the target's vocabulary {vocab_size}",
        )
    ends = np.cumsum(lengths).tolist()
    return [
        array("i", token_ids[end - length : end].tobytes()) for end, length in zip(ends, lengths, strict=True)
    ]


def _decompressed(content: bytes) -> bytes:
    """Return the content of a compressed file.

    Raises:
        lzma.LZMAError: if it is damaged.
        ValueError: if it ends early, holds more than its size allows, or something follows it.
    """
    decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MOST_DECODER_BYTES)
    most = _most_bytes(len(content))
    found = decoder.decompress(content, max_length=most + 1)
    if len(found) > most:
        raise ValueError(f"it holds more than {most} bytes, compressed to {len(content)}")
    if not decoder.eof or decoder.unused_data:
        raise ValueError("it ends early, or something follows it")
    return found


def _most_bytes(num_compressed: int) -> int:
    """Return how many bytes a compressed file may hold."""
    return max(_MOST_BYTES, _MOST_EXPANSION * num_compressed)


def _digest(tokenizer: str, token_ids: npt.NDArray[np.int32], lengths: npt.NDArray[np.int64]) -> str:
    """Return the checksum.

    Raises:
        ValueError: if the arrays do not match each other.
    """
    found = [(each.dtype.name, each.ndim) for each in (token_ids, lengths)]
    if found != [("int32", 1), ("int64", 1)]:
        raise ValueError("a tensor has another type")
    # Each length on its own first, because their sum may wrap around.
    if (lengths < 1).any() or (lengths > len(token_ids)).any() or int(lengths.sum()) != len(token_ids):
        raise ValueError("the lengths do not fit the tokens")
    digest = hashlib.sha256(f"{FORMAT}\0{VERSION}\0{tokenizer}\0{len(lengths)}\0".encode())
    digest.update(lengths.tobytes())
    digest.update(token_ids.tobytes())
    return digest.hexdigest()


def _refuse(path: Path, reason: str) -> NoReturn:
    raise ConfigError(f"suffix cache {str(path)!r} {reason}: {REMEDY}")


def _named(tokenizer: str | None) -> str:
    return f"tokenizer {tokenizer[:12]}" if tokenizer else "no tokenizer"
