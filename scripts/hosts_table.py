"""The table of what was tried in each engine, from the file that adapters/hosting/tests/real writes."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from readme_table import markdown_table, results_in

_HEAD = ["engine", "method", "drafts", "asked", "verified by", "texts equal", "date"]
_FIRST = itemgetter("engine", "version", "method", "shape", "sampler")


def hosts(file: Path) -> str:
    """Return one line for each engine and method; what was tried with several targets or ways to ask is one line."""
    found = sorted(results_in(file)["rows"], key=_FIRST)
    return markdown_table([_HEAD, *(_line([*rows]) for _, rows in groupby(found, _FIRST))])


def _line(rows: list[dict[str, Any]]) -> list[str]:
    first = rows[0]
    equal, texts = (sum(row[name] for row in rows) for name in ("num_equal", "num_texts"))
    at = sorted({part for row in rows for part in row["temperatures"].split(", ")})
    asked = sorted({row["asked"].replace("_", " ") for row in rows})
    return [
        f"{first['engine']} {first['version']}",
        f"`{first['method']}`",
        f"{first['shape']}s",
        ", ".join(asked),
        first["sampler"],
        f"{equal} of {texts} at {' and '.join(at)}",
        max(row["date"] for row in rows),
    ]
