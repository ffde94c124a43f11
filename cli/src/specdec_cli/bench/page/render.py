"""Renders the rows of a report as a self-contained HTML page."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from specdec_cli.bench.page.acceptance_chart import acceptance_chart
from specdec_cli.bench.page.speedup_chart import speedup_chart
from specdec_cli.bench.page.step_chart import step_chart
from specdec_cli.bench.shown import ratio_text, speed_cells
from specdec_cli.page_template import page_template

Row = Mapping[str, Any]
TOLD_APART = ("command", "versions", "suite")
"""Keys of the environment that have their own place on the page."""


def render(
    rows: Sequence[Row],
    categories: Sequence[Row],
    environment: Mapping[str, Any],
    tuning: Mapping[str, Any] | None = None,
) -> str:
    """Return a report as HTML with inline styles and charts, light and dark mode, and a table of values for every chart.

    Args:
        rows: rows with the additional columns; for a suite the overall rows first, then those of its tasks.
        categories: for a suite, the rows by the categories of its file; else empty.
        environment: environment of the run.
        tuning: for a search its choice: reasons, usage, what was tried and left out.
    """
    overall = [row for row in rows if row.get("category") == rows[0].get("category")]
    suite = environment.get("suite")
    return page_template("specdec_cli.bench", "page").render(
        title=_title(environment, "bench" if tuning is None else "tune"),
        tuning=tuning,
        overall=overall,
        rows=rows,
        categories=categories,
        suite=suite,
        environment=environment,
        facts={key: value for key, value in environment.items() if key not in TOLD_APART},
        command=shlex.join(environment["command"]),
        configs=[(row["name"], json.dumps(row["config"])) for row in overall if row["config"] is not None],
        speedup_chart=speedup_chart(rows) if len(overall) > 1 else None,
        acceptance_chart=acceptance_chart(overall)
        if any(row["acceptance_per_position"] for row in overall)
        else None,
        step_chart=step_chart(overall),
        shown=_shown,
        speeds=_speeds,
        ratio_text=ratio_text,
        bounds=_bounds(environment),
    )


def _title(environment: Mapping[str, Any], command: str) -> str:
    suite = environment.get("suite")
    what = suite["name"] if suite else "prompts"
    return f"specdec {command}: {what} on {environment['model'] or 'a model'}"


def _bounds(environment: Mapping[str, Any]) -> str:
    suite = environment.get("suite")
    if suite and suite["bounds"] == "questions":
        return "Bounds are 95 %, by resampling the questions; a category with a single question has none."
    if environment.get("bounds") == "prompts":
        return "Bounds are 95 %, by resampling the groups of prompts that were run together."
    if environment["rounds"] < 6:
        return "Bounds are the smallest and the largest value of the rounds: fewer than six cannot give 95 %."
    return "Bounds are 95 %, by rounds."


def _speeds(rows: Sequence[Row]) -> list[tuple[Row, tuple[str, str, str]]]:
    """Return each row with its tokens/s, speed-up and bounds; the first row of a category is plain decoding's."""
    plain = {row.get("category"): row for row in reversed(rows)}
    return [(row, speed_cells(row, plain[row.get("category")], " to ")) for row in rows]


def _shown(value: float | None, digits: int = 2) -> str:
    """Return a number for a table, or a dash for None."""
    return "-" if value is None else f"{value:.{digits}f}"
