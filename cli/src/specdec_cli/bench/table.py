"""Prints a report as a table, 80 columns wide."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from textwrap import fill
from typing import Any

from rich.console import Console
from rich.table import Table

from specdec_cli.bench.shown import speed_cells

WIDTH = 80
"""Minimum width of a report, in columns."""
WIDE = 240
"""Maximum width of other tables; a narrow terminal wraps their lines, which is better than dropping columns."""
PARTS = ("propose", "score", "forward", "verify", "other")
CATEGORIES_BESIDE = 6
"""Number of category columns that fit beside the names."""
SHORT = {
    "multi-turn conversation": "chat",
    "translation": "transl.",
    "summarization": "summar.",
    "question answering": "QA",
    "mathematical reasoning": "math",
    "retrieval-augmented generation": "RAG",
}
"""Short names of the tasks of suites."""
LONGEST_HEADING = 8


def print_report(rows: Sequence[dict[str, Any]], environment: dict[str, Any]) -> None:
    """Print the rows of a report and the settings of the run.

    Args:
        rows: rows with the additional columns; for a suite also those of its tasks.
        environment: environment of the run.
    """
    overall = [row for row in rows if row.get("category") in (None, rows[0].get("category"))]
    print_summary(overall)
    if "suite" in environment:
        _print_categories(rows, [row["name"] for row in overall])
    else:
        _print_steps(overall)
    print(_facts(overall[0], environment))
    print_rounding(overall, environment)


def print_rounding(rows: Sequence[dict[str, Any]], environment: dict[str, Any]) -> None:
    """Say why texts may differ, if some do and rounding may be the reason."""
    if "16" in environment["dtype"] and not all(row["identical_to_baseline"] for row in rows):
        print(
            "With 16 bits logits depend on how many rows a pass has, so texts may part where two\n"
            "tokens are close; --deterministic or --dtype float32 shows whether that is all."
        )


def print_summary(rows: Sequence[dict[str, Any]]) -> None:
    """Print speed, acceptance and identity of each configuration."""
    table = new_table("configuration", "tok/s", "speed-up", "95 %", "accepted", "drafted", "identical")
    table.columns[0].no_wrap = False
    table.columns[0].overflow = "fold"
    for row in rows:
        table.add_row(
            row["name"],
            *speed_cells(row, rows[0]),
            f"{row['mean_acceptance_length']:.2f}",
            f"{100 * row['drafted_share']:.0f} %",
            yes_or_no(row["identical_to_baseline"]),
        )
    _print(table)


def _print_steps(rows: Sequence[dict[str, Any]]) -> None:
    table = new_table("ms per step", *PARTS, "TTFT", "4-grams")
    table.columns[0].no_wrap = False
    table.columns[0].overflow = "fold"
    for row in rows:
        times = [milliseconds(row[f"{part}_ms"]) for part in PARTS]
        table.add_row(row["name"], *times, milliseconds(row["ttft_ms"]), f"{row['distinct_4gram_ratio']:.2f}")
    print()
    _print(table)


def _print_categories(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> None:
    """Print speed-ups by contender and category, with as many categories side by side as fit."""
    categories = list(dict.fromkeys(row["category"] for row in rows))[1:]
    plain = {row["category"]: row for row in reversed(rows)}
    speedups = {(row["category"], row["name"]): speed_cells(row, plain[row["category"]])[1] for row in rows}
    for start in range(0, len(categories), CATEGORIES_BESIDE):
        beside = categories[start : start + CATEGORIES_BESIDE]
        table = new_table("speed-up", *(SHORT.get(name, name[:LONGEST_HEADING]) for name in beside))
        table.columns[0].no_wrap = False
        table.columns[0].overflow = "fold"
        for name in names:
            table.add_row(name, *(speedups[category, name] for category in beside))
        print()
        _print(table)


def _facts(first: dict[str, Any], environment: dict[str, Any]) -> str:
    """Return the settings of the run and the meaning of the columns."""
    rounds = environment["rounds"]
    suite = environment.get("suite")
    count = first["num_prompts"]
    ending = "s" if count > 1 else ""
    what = f"prompt{ending}" if suite is None else f"question{ending} of {suite['name']}"
    how = (
        f"{count} {what}, "
        f"{environment['max_tokens']} tokens each at most, batch size {first['batch_size']}, temperature "
        f"{environment['temperature']:g}, {environment['dtype']} on {environment['device']}, "
        f"{'prefixes cached, ' if environment['prefix_caching'] else ''}"
        f"{rounds} round{'s' if rounds > 1 else ''}."
    )
    columns = "Accepted: mean acceptance length of drafts. Drafted: share of steps with a draft."
    if suite is None:
        columns += (
            " Times are medians; forward is the target's pass alone. TTFT: time to the first token. 4-grams: distinct over "
            "all, low where text loops."
        )
    elif suite["bounds"] == "questions":
        columns += " 95 %: bounds by resampling the questions."
    return "\n" + "\n".join(fill(text, WIDTH) for text in (how, columns))


def new_table(*headings: str) -> Table:
    """Return a table without a frame; the first column is for names, the others for numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="right" if index else "left", no_wrap=True)
    return table


def _print(table: Table) -> None:
    """Print a table of a report; names wrap if it would be wider than the terminal, or than 80 columns in a pipe."""
    width = max(WIDTH, Console(file=sys.stdout).width) if sys.stdout.isatty() else WIDTH
    Console(file=sys.stdout, width=width, highlight=False).print(table)


def milliseconds(value: float | None) -> str:
    """Return a time with three digits, or a dash for None."""
    return "-" if value is None else f"{value:.3g}" if value >= 0.01 else f"{value:.3f}"


def yes_or_no(value: bool) -> str:
    """Return `yes` or a highlighted `NO`."""
    return "yes" if value else "[bold red]NO[/]"
