"""The results of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Report:
    """Rows and the environment they were measured in."""

    rows: list[Row]
    environment: dict[str, Any]
    shown: list[Row]
    """The rows with the columns that only tables and pages show."""
    categories: list[Row] | None = None
    """For a suite: rows by the categories of its file; `rows` has its tasks."""

    def data(self) -> dict[str, Any]:
        """Return the data of the JSON report."""
        found: dict[str, Any] = {"rows": self.rows}
        if self.categories is not None:
            found["categories"] = self.categories
        return found | {"environment": self.environment}
