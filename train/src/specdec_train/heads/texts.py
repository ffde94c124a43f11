"""Reads training texts from files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

_KEYS = ("text", "prompt", "response", "completion")


def read_texts(files: Sequence[Path]) -> list[str]:
    """Return the texts of files: one per line of a `.jsonl` file, one per other file.

    A line holds `{"text": ...}`, or `{"prompt": ..., "response": ...}`, which are joined.

    Raises:
        ValueError: if a file or a line cannot be read; the message names it.
    """
    texts: list[str] = []
    for file in files:
        try:
            content = file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{file} cannot be read as UTF-8 text: {error}") from None
        if file.suffix != ".jsonl":
            texts.append(content)
            continue
        for number, line in enumerate(content.splitlines(), 1):
            if line.strip():
                texts.append(_text_of(line, f"{file}:{number}"))
    return texts


def split_texts(texts: Sequence[str], heldout_permille: int) -> tuple[list[str], list[str]]:
    """Return training and held-out texts; a text's side depends only on its hash, so it never changes.

    Raises:
        ValueError: if one side is empty.
    """
    sides: tuple[list[str], list[str]] = ([], [])
    for text in texts:
        number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
        sides[number % 1000 < heldout_permille].append(text)
    if not all(sides):
        raise ValueError(
            f"{len(texts)} texts leave nothing to {'hold out' if sides[0] else 'train on'}: give more of them, or another "
            "--heldout-permille"
        )
    return sides


def _text_of(line: str, place: str) -> str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place}: not JSON ({error})") from None
    parts = [record[key] for key in _KEYS if isinstance(record, dict) and isinstance(record.get(key), str)]
    if not parts:
        raise ValueError(f'{place}: needs {{"text": ...}} or {{"prompt": ..., "response": ...}}')
    return "".join(parts)
