"""`python scripts/readme_picture.py [FILE]`: record `specdec generate` on a terminal as the picture of the README."""

from __future__ import annotations

import os
import pty
import re
import shlex
import sys
from pathlib import Path

from packages import ROOT
from rich.console import Console
from rich.text import Text

WIDTH = 100
CONFIG = '{"method": "auto"}'
QUESTION = (
    "Write this Python code again, with an indent of 4 where it writes JSON:\n\n"
    "```python\nimport json\n\ndef load(path):\n    with open(path) as file:\n        return json.load(file)\n\n"
    'def save(path, data):\n    with open(path, "w") as file:\n        json.dump(data, file)\n```'
)
OPTIONS = ("--model", "smollm2", "--chat", "--highlight", "--temperature", "0")
_ERASE_LINE = "\x1b[2K"
_MOVES = re.compile(r"\x1b\[(?!\d*(?:;\d+)*m)[0-9;?]*[A-Za-z]")
"""Movements of the cursor; colours stay."""


def recorded(command: list[str]) -> str:
    """Return what a command prints on a terminal, with colours."""
    printed = bytearray()

    def read(descriptor: int) -> bytes:
        data = os.read(descriptor, 65_536)
        printed.extend(data)
        return data

    status = pty.spawn(command, read)
    if status:
        raise SystemExit(f"{shlex.join(command)} ended with {status}")
    shown = printed.decode().rpartition(_ERASE_LINE)[2]  # behind the progress display
    return _MOVES.sub("", shown).replace("\r\n", "\n").strip()


def smaller(picture: str) -> str:
    """Return an SVG without indents, empty lines and the clipping of each line of text, its numbers rounded."""
    picture = re.sub(
        r'<clipPath id="t-line-\d+">.*?</clipPath>| clip-path="url\(#t-line-\d+\)"',
        "",
        picture,
        flags=re.DOTALL,
    )
    lines = "\n".join(filter(None, map(str.strip, picture.splitlines()))) + "\n"
    return re.sub(r"\d+\.\d{5,}", lambda number: f"{float(number[0]):g}", lines)


def main(arguments: list[str]) -> None:
    """Write the picture."""
    file = arguments[0] if arguments else str(ROOT / "docs/picture.svg")
    command = ["specdec", "generate", *OPTIONS, "--speculative-config", CONFIG, "--prompt", QUESTION]
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    console.print(Text("$ " + " ".join(map(shlex.quote, command[:-1])) + ' "$QUESTION"', style="bold"))
    console.print(Text(QUESTION + "\n", style="dim"))
    recorded(command)  # the first run compiles
    console.print(Text.from_ansi(recorded(command)))
    picture = console.export_svg(title="specdec: accepted drafts are green", unique_id="t")
    Path(file).write_text(smaller(picture), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
