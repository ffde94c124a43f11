"""Chart: speed-up over plain decoding, by category, with bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from specdec_bench.page.svg import WIDTH, clipped, drawing, element, grid, line, plain, series, text, ticks

LEFT, RIGHT, TOP = 210, 90, 10
ROW, HEADING = 20, 24


def speedup_chart(rows: Sequence[Mapping[str, Any]]) -> Markup:
    """Return a chart with one point and its bounds per category and configuration, and a reference line at 1.

    Args:
        rows: the baseline first in each category; it is not drawn.
    """
    baseline = rows[0]["name"]
    names = list(dict.fromkeys(row["name"] for row in rows))
    shown = [row for row in rows if row["name"] != baseline]
    marks = ticks(max([1.0, *(row["speedup_high"] for row in shown)]))
    scale = (WIDTH - LEFT - RIGHT) / marks[-1]
    parts: list[Markup] = []
    y, category = float(TOP), None
    for row in shown:
        if row.get("category") != category:
            category = row.get("category")
            y += HEADING
            parts.append(text(category, 0, y - 6, class_="heading"))
        y += ROW
        parts += _entry(row, y - ROW / 2, scale, names.index(row["name"]))
    behind = grid([(LEFT + scale * mark, plain(mark)) for mark in marks], TOP, y + 4)
    behind.append(line(LEFT + scale, TOP, LEFT + scale, y + 4, class_="reference"))
    title = "Speed-up over plain decoding by category and configuration, with 95 % bounds; the table below has the values"
    return drawing([*behind, *parts], y + 30, title, "speedup-title")


def _entry(row: Mapping[str, Any], y: float, scale: float, index: int) -> list[Markup]:
    low, middle, high = (LEFT + scale * row[key] for key in ("speedup_low", "speedup", "speedup_high"))
    colour = series(index)
    return [
        text(clipped(row["name"]), LEFT - 10, y + 4, class_="label", text_anchor="end"),
        line(low, y, high, y, class_=f"{colour} bounds"),
        line(low, y - 4, low, y + 4, class_=f"{colour} bounds"),
        line(high, y - 4, high, y + 4, class_=f"{colour} bounds"),
        element("circle", cx=middle, cy=y, r=5, class_=f"{colour} point"),
        text(f"{row['speedup']:.2f}", WIDTH - RIGHT + 20, y + 4, class_="value"),
    ]
