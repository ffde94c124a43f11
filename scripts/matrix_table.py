"""Writes and reads tests/results/matrix.json, and turns it into a Markdown table with one line per sampler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from readme_table import markdown_table

Row = dict[str, Any]


COLUMNS = ["num_accepted", "ratio", "mutant_ratio"]
"""Numbers of a cell."""


def write_cells(file: Path, rows: list[Row], facts: dict[str, Any]) -> None:
    """Write cells by parameter and sampler, a line for each sampler with a cell or null for each draft, and facts about all."""
    drafts = list(dict.fromkeys(row["draft"] for row in rows))
    cells: dict[str, dict[str, list[list[Any] | None]]] = {}
    for row in rows:
        by_draft = cells.setdefault(row["parameter"], {}).setdefault(row["sampler"], [None] * len(drafts))
        by_draft[drafts.index(row["draft"])] = [row[column] for column in COLUMNS]
    groups = [
        f"{json.dumps(name)}:{{\n"
        + ",\n".join(f"{json.dumps(s)}:{json.dumps(c, separators=(',', ':'))}" for s, c in by_sampler.items())
        + "}"
        for name, by_sampler in cells.items()
    ]
    named = {"columns": COLUMNS, "drafts": drafts}
    before, after = (
        "".join(f"{json.dumps(name)}: {json.dumps(value)},\n" for name, value in parts.items())
        for parts in (named, facts)
    )
    text = f'{{{before}{after}"cells": {{\n' + ",\n".join(groups) + "}}\n"
    file.write_text(text, encoding="utf-8")


def read_cells(file: Path) -> list[Row]:
    """Return the cells of a result, in its order."""
    result = json.loads(file.read_text(encoding="utf-8"))
    return [
        {
            "sampler": sampler,
            "draft": draft,
            "parameter": name,
            **dict(zip(result["columns"], cell, strict=True)),
        }
        for name, by_sampler in result["cells"].items()
        for sampler, cells in by_sampler.items()
        for draft, cell in zip(result["drafts"], cells, strict=True)
        if cell is not None
    ]


def matrix_table(file: Path) -> str:
    """Return a table with each sampler's largest statistic and weakest mutant, or one line if there is no result yet.

    Args:
        file: the result of `tests/full_matrix.py`.
    """
    if not file.exists():
        return f"*Not measured yet: `{file.name}` is missing.*"
    rows = read_cells(file)
    table = [["sampler", "cells", "largest statistic over its bound", "smallest of the mutants"]]
    for sampler in dict.fromkeys(row["sampler"] for row in rows):
        cells = [row for row in rows if row["sampler"] == sampler]
        closest = max(cells, key=lambda cell: _finite(cell["ratio"]))
        weakest = min(cells, key=lambda cell: _finite(cell["mutant_ratio"]))
        table.append(
            [
                f"`{sampler}`",
                str(len(cells)),
                f"{_finite(closest['ratio']):.2f} (`{closest['parameter']}`, {_draft(closest)})",
                f"{_finite(weakest['mutant_ratio']):.1f} (`{weakest['parameter']}`, {_draft(weakest)})",
            ]
        )
    return markdown_table(table)


def _finite(ratio: float | None) -> float:
    """Return a ratio; None stands for a text that cannot occur."""
    return float("inf") if ratio is None else ratio


def _draft(cell: Row) -> str:
    return "no draft" if cell["draft"] == "none" else str(cell["draft"])
