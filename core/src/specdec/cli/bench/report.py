"""What a run found out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Report:
    """Rows, and where they were made."""

    rows: list[Row]
    environment: dict[str, Any]
    shown: list[Row]
    """The rows with what only tables and pages show."""
    categories: list[Row] | None = None
    """Of a suite: rows by the categories of its file, where `rows` has its tasks."""

    def data(self) -> dict[str, Any]:
        """Return what is written as JSON."""
        found: dict[str, Any] = {"rows": self.rows}
        if self.categories is not None:
            found["categories"] = self.categories
        return found | {"environment": self.environment}
