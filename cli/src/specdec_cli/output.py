"""Output shared by the commands: JSON, tables and errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

USER_ERROR = 2
"""Exit code for errors that the user can fix."""


def print_json(data: object, path: Path | None = None) -> None:
    """Write data as JSON to a file, or to the standard output if the path is None or `-`."""
    text = json.dumps(data, indent=2, ensure_ascii=False, default=str)
    if path is None or str(path) == "-":
        print(text)
    else:
        path.write_text(text + "\n", encoding="utf-8")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under a heading as plain text with aligned columns, easy to parse."""
    print("\n".join(table_lines(columns, rows)))


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return the lines that `print_table` prints."""
    cells = [[str(column).upper() for column in columns], *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def print_fields(fields: Mapping[str, object]) -> None:
    """Print names and values, one pair a line."""
    width = max((len(name) for name in fields), default=0)
    for name, value in fields.items():
        print(f"{name.ljust(width)}  {value}")


def error(message: str) -> None:
    """Print an error as one line on the standard error stream."""
    print(f"specdec: error: {'; '.join(message.splitlines())}", file=sys.stderr)


def warn(message: str) -> None:
    """Print a warning as one line on the standard error stream."""
    print(f"specdec: warning: {'; '.join(message.splitlines())}", file=sys.stderr)


def hint(message: str) -> None:
    """Print advice as one line on the standard error stream."""
    print(f"specdec: hint: {'; '.join(message.splitlines())}", file=sys.stderr)
