"""Writes a report as a table, JSON and an HTML page."""

from __future__ import annotations

from pathlib import Path

from specdec import ConfigError
from specdec.frontend import no_drafts_message
from specdec_cli import print_json, warn
from specdec_cli.bench.report import Report, Row
from specdec_cli.bench.table import print_report


def show(report: Report, json: Path | None, html: Path | None) -> None:
    """Write a report to the requested files, and print the table unless JSON goes to the standard output.

    Raises:
        ConfigError: for a file that cannot be written; it is raised after all other output is written.
    """
    failures: list[ConfigError] = []
    for name, path, write in (("--json", json, _write_json), ("--html", html, _write_html)):
        if path is not None:
            try:
                write(report, path)
            except OSError as error:
                failures.append(ConfigError(f"{name}: cannot write {str(path)!r}: {error.strerror}"))
    if json is None or str(json) != "-":
        print_report(report.shown, report.environment)
    for warning in warnings(report):
        warn(warning)
    if failures:
        raise failures[0]


def warnings(report: Report) -> list[str]:
    """Return warnings about the numbers: the run was interrupted, or a configuration drafted nothing or failed."""
    found = []
    if "interrupted" in report.environment:
        found.append(
            f"interrupted: the report has what all had finished ({report.environment['interrupted']})"
        )
    first = report.shown[0].get("category")
    overall = [row for row in report.shown if row["config"] is not None and row.get("category") == first]
    return found + [text for row in overall for text in _of_row(row)]


def _of_row(row: Row) -> list[str]:
    failed = row["num_proposer_errors"]
    if row["num_drafts"]:
        lost = f"{row['name']}: its proposer failed {failed} times, each at the cost of a step's drafts"
        return [lost] if failed else []
    return [no_drafts_message(row["name"], row["method"], failed)]


def _write_json(report: Report, path: Path) -> None:
    print_json(report.data(), path)


def _write_html(report: Report, path: Path) -> None:
    from specdec_cli.bench.page import render  # imports Matplotlib

    path.write_text(render(report.shown, report.categories or [], report.environment), encoding="utf-8")
