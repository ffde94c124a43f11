"""Turns tests/results/matrix.json into one Markdown table per sampler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from readme_table import markdown_table


def matrix_table(file: Path, sampler: str) -> str:
    """Return a table of parameters by draft kinds, or one line if there is no result yet.

    Args:
        file: the result of `tests/full_matrix.py`.
        sampler: the sampler to show.
    """
    if not file.exists():
        return f"*Not measured yet: `{file.name}` is missing.*"
    rows: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["rows"]
    cells = {(row["parameter"], row["draft"]): row for row in rows if row["sampler"] == sampler}
    if not cells:
        return f"*Not measured yet: `{file.name}` has no cells of `{sampler}`.*"
    drafts = list(dict.fromkeys(draft for _, draft in cells))
    table = [["parameter", *drafts, "mutants: without a draft; with one"]]
    for parameter in dict.fromkeys(parameter for parameter, _ in cells):
        row = [cells.get((parameter, draft)) for draft in drafts]
        mutants = dict.fromkeys(cell["mutant"] for cell in row if cell is not None)
        found = [
            "-" if cell is None else f"{_shown(cell['ratio'])} / {_shown(cell['mutant_ratio'])}"
            for cell in row
        ]
        table.append([f"`{parameter}`", *found, "; ".join(mutants)])
    return markdown_table(table)


def _shown(ratio: float | None) -> str:
    return "∞" if ratio is None else f"{ratio:.2g}" if ratio < 10 else f"{ratio:.0f}"
