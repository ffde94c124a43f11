"""Chart: speed-up over plain decoding, by category, with bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes

from specdec_cli.bench.page.figure import clipped, colour, drawing, series
from specdec_cli.bench.shown import NO_DIFFERENCE, is_shown

ROW = 0.2
"""Inches."""


def speedup_chart(rows: Sequence[Mapping[str, Any]]) -> Markup:
    """Return a chart with one point and its bounds per category and configuration, and a reference line at 1.

    Args:
        rows: the baseline first in each category; it is not drawn.
    """
    names = list(dict.fromkeys(row["name"] for row in rows))
    shown = [row for row in rows if row["name"] != names[0]]
    entries: list[str | Mapping[str, Any]] = []
    """Headings and rows, from the top."""
    for category, members in groupby(shown, lambda row: row.get("category")):
        entries += [*([] if category is None else [str(category)]), *members]

    def fill(axes: Axes) -> None:
        for y, entry in enumerate(entries):
            if not isinstance(entry, str):
                _point(axes, entry, y, series(names.index(entry["name"])))
        axes.axvline(1.0, color=colour("ink"), linestyle="--", linewidth=1)
        axes.set_xlim(0, 1.05 * max([1.0, *(row["speedup_high"] for row in shown)]))
        axes.set_ylim(len(entries) - 0.5, -0.5)
        labels = [entry if isinstance(entry, str) else clipped(entry["name"]) for entry in entries]
        for label, entry in zip(axes.set_yticks(range(len(entries)), labels), entries, strict=True):
            label.label1.set_fontweight("bold" if isinstance(entry, str) else "normal")
        axes.grid(axis="x")

    title = "Speed-up over plain decoding by category and configuration, with 95 % bounds; the table below has the values"
    return drawing(fill, ROW * len(entries) + 0.4, title, "speedup-title")


def _point(axes: Axes, row: Mapping[str, Any], y: int, ink: str) -> None:
    value = row["speedup"]
    bounds = [[value - row["speedup_low"]], [row["speedup_high"] - value]]
    axes.errorbar(value, y, xerr=bounds, fmt="o", color=ink, capsize=3, markersize=5)
    text = f"{value:.2f}" if is_shown(row["speedup_low"], row["speedup_high"]) else NO_DIFFERENCE
    axes.text(1.02, y, text, transform=axes.get_yaxis_transform(), va="center", color=colour("faint"))
