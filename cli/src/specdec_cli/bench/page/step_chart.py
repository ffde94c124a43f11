"""Chart: breakdown of the time of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes

from specdec_cli.bench.page.figure import clipped, colour, drawing

PARTS = ("propose", "score", "verify", "other")
ROW = 0.34
"""Inches."""


def step_chart(rows: Sequence[Mapping[str, Any]]) -> Markup:
    """Return a chart with one stacked bar per configuration, in which the bare forward pass is marked.

    Args:
        rows: one per configuration.
    """

    def fill(axes: Axes) -> None:
        for y, row in enumerate(rows):
            end = 0.0
            for part in PARTS:
                width = max(0.0, row[f"{part}_ms"])
                axes.barh(y, width, 0.55, left=end, color=colour(part))
                end += width
            if row["forward_ms"] is not None:
                forward = max(0.0, row["propose_ms"]) + row["forward_ms"]
                axes.vlines(forward, y - 0.42, y + 0.42, color=colour("ink"), linewidth=2)
            axes.annotate(
                f"{end:.3g} ms",
                (end, y),
                (6, 0),
                textcoords="offset points",
                va="center",
                color=colour("faint"),
            )
        axes.set_yticks(range(len(rows)), [clipped(row["name"]) for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(left=0)
        axes.grid(axis="x")

    title = (
        "Median time of a step in milliseconds by configuration: proposing, scoring, verifying and all other work, with the "
        "end of the bare forward pass marked; the table below has the values"
    )
    return drawing(fill, ROW * len(rows) + 0.5, title, "step-title")
