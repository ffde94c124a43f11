"""A report for people."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

WIDTH = 240
"""Columns that a table may take; a narrow terminal breaks its lines, which is better than to lose columns."""


def print_report(rows: Sequence[dict[str, Any]], environment: dict[str, Any]) -> None:
    """Print the rows of a report, and how they came about."""
    table = new_table(
        "configuration", "tok/s", "speed-up", "95 %", "in theory", "accepted", "rate", "propose"
    )
    for heading in ("score", "forward", "verify", "other", "TTFT", "MB", "identical", "4-grams"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row["name"],
            f"{row['tokens_per_s']:.0f}",
            f"{row['speedup']:.2f}x",
            f"{row['speedup_low']:.2f}-{row['speedup_high']:.2f}",
            _times(theoretical_speedup(row, rows[0])),
            f"{row['mean_acceptance_length']:.2f}",
            f"{row['acceptance_rate']:.2f}",
            *(milliseconds(row[f"{part}_ms"]) for part in ("propose", "score", "forward", "verify", "other")),
            milliseconds(row["ttft_ms"]),
            f"{row['peak_memory_mb']:.0f}",
            yes_or_no(row["identical_to_baseline"]),
            f"{row['distinct_4gram_ratio']:.2f}",
        )
    print_wide(table)
    first = rows[0]
    print(
        f"{first['num_prompts']} prompts, {environment['max_tokens']} tokens each at most, batch size "
        f"{first['batch_size']}, temperature {environment['temperature']:g}, {environment['dtype']} on "
        f"{environment['device']}, {environment['rounds']} rounds.\n"
        "Milliseconds: medians per step; forward is the target's pass alone. Accepted: mean acceptance length. "
        "4-grams: distinct over all, low where text loops.\n"
        "In theory: the speed-up of a step with a draft at this acceptance if drafting and the target's pass were all it took."
    )
    if "16" in environment["dtype"] and not all(row["identical_to_baseline"] for row in rows):
        print(
            "With 16 bits logits depend on how many rows a pass has; --dtype float32 shows whether texts differ."
        )


def theoretical_speedup(row: dict[str, Any], baseline: dict[str, Any]) -> float | None:
    """Return what the acceptance measured allows: tokens of a step over its time, if drafting and the pass were all of it.

    Leviathan et al. (arXiv 2211.17192, theorem 3.8), with the times measured instead of ratios of sizes, so that the costs of
    verified rows and of drafting count, and no other. None where nothing was drafted or a time is missing.
    """
    times = baseline["forward_ms"], row["forward_ms"], row["propose_ms"]
    if None in times or not row["acceptance_per_position"]:
        return None
    plain, scoring, drafting = times
    return float(row["mean_acceptance_length"] * plain / (scoring + drafting))


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}x"


def new_table(*headings: str) -> Table:
    """Return a table without a frame; the first column is for names, the others for numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="right" if index else "left", no_wrap=True)
    return table


def print_wide(table: Table) -> None:
    """Print a table to the standard output, as wide as it is."""
    Console(file=sys.stdout, width=WIDTH, highlight=False).print(table)


def milliseconds(value: float | None) -> str:
    """Return a time with three digits, or a dash where there is none."""
    return "-" if value is None else f"{value:.3g}" if value >= 0.01 else f"{value:.3f}"


def yes_or_no(value: bool) -> str:
    """Return a word; the wrong one stands out."""
    return "yes" if value else "[bold red]NO[/]"
