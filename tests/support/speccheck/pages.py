"""The fenced blocks of documents."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(
    r"(?:<!-- file: (?P<file>\S+?)(?P<appended>, appended)? -->\n)?```(?P<language>\w+)\n(?P<text>.*?)```",
    re.S,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a document."""

    language: str
    text: str
    file: str | None
    is_appended: bool

    def write(self, folder: Path) -> None:
        """Write a block that is a file."""
        assert self.file is not None
        with (folder / self.file).open("a" if self.is_appended else "w", encoding="utf-8") as out:
            out.write(self.text)


def blocks(document: Path) -> list[Block]:
    found = BLOCK.finditer(document.read_text(encoding="utf-8"))
    return [Block(m["language"], m["text"], m["file"], m["appended"] is not None) for m in found]
