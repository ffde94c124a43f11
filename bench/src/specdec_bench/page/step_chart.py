"""Chart: breakdown of the time of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from specdec_bench.page.svg import WIDTH, clipped, drawing, element, grid, line, plain, text, ticks

PARTS = ("propose", "score", "verify", "other")
LEFT, RIGHT, TOP = 210, 80, 10
ROW, BAR = 34, 18


def step_chart(rows: Sequence[Mapping[str, Any]]) -> Markup:
    """Return a chart with one stacked bar per configuration, in which the bare forward pass is marked.

    Args:
        rows: one per configuration.
    """
    totals = [sum(max(0.0, row[f"{part}_ms"]) for part in PARTS) for row in rows]
    marks = ticks(max(totals))
    scale = (WIDTH - LEFT - RIGHT) / marks[-1]
    bottom = float(TOP + ROW * len(rows))
    parts = grid([(LEFT + scale * mark, plain(mark)) for mark in marks], TOP, bottom)
    for index, (row, total) in enumerate(zip(rows, totals, strict=True)):
        y = TOP + ROW * index + (ROW - BAR) / 2
        parts.append(text(clipped(row["name"]), LEFT - 10, y + BAR - 5, class_="label", text_anchor="end"))
        x = float(LEFT)
        for part in PARTS:
            width = scale * max(0.0, row[f"{part}_ms"])
            parts.append(element("rect", x=x, y=y, width=width, height=BAR, class_=part))
            if part == "propose" and row["forward_ms"] is not None:
                end = x + width + scale * row["forward_ms"]
                forward = line(end, y - 5, end, y + BAR + 5, class_="forward")
            x += width
        if row["forward_ms"] is not None:
            parts.append(forward)
        parts.append(text(f"{total:.3g} ms", x + 8, y + BAR - 5, class_="value"))
    title = (
        "Median time of a step in milliseconds by configuration: proposing, scoring, verifying and all other work, with the "
        "end of the bare forward pass marked; the table below has the values"
    )
    return drawing(parts, bottom + 30, title, "step-title")
