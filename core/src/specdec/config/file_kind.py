"""What a file is that was given in place of a model, by its first bytes."""

from __future__ import annotations

from pathlib import Path

GGUF = b"GGUF"
_KINDS = (
    (GGUF, "a GGUF file"),
    (b"version https://git-lfs", "a pointer of Git LFS and not the file itself"),
    (b"PK\3\4", "a zip archive, as torch.save writes"),
    (b"\x80", "a pickle"),
    (b"{", "text in JSON"),
)
_LONGEST = max(len(start) for start, _ in _KINDS)


def is_gguf(file: Path) -> bool:
    """Return whether a file begins as GGUF files do; false for one that cannot be read."""
    try:
        return _start(file).startswith(GGUF)
    except OSError:
        return False


def kind_of(file: Path) -> str:
    """Return what a file is, with its article."""
    try:
        start = _start(file)
    except OSError as error:
        return f"a file that cannot be read ({error.strerror})"
    if not start:
        return "an empty file"
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") < file.stat().st_size:
        return "a safetensors file, the weights alone"
    return next((kind for begin, kind in _KINDS if start.startswith(begin)), "a file of another kind")


def _start(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(_LONGEST)
