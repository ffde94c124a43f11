"""Chart: acceptance rate of drafted tokens, by position in the draft."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from specdec_cli.bench.page.figure import clipped, drawing, series

DASHES = ("-", "--", ":", "-.")


def acceptance_chart(rows: Sequence[Mapping[str, Any]]) -> Markup:
    """Return a chart with one line per configuration, over positions from 1.

    Args:
        rows: one per configuration, the baseline first; those without drafts have no line.
    """

    def fill(axes: Axes) -> None:
        for index, row in enumerate(rows):
            rates = row["acceptance_per_position"]
            if rates:
                style = DASHES[index % len(DASHES)]
                axes.plot(
                    range(1, len(rates) + 1),
                    rates,
                    style,
                    marker="o",
                    markersize=4,
                    color=series(index),
                    label=clipped(row["name"]),
                )
        axes.set_ylim(0, 1)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        axes.xaxis.set_major_locator(MaxNLocator(12, integer=True, min_n_ticks=1))
        axes.set_xlabel("position in the draft")
        axes.grid(axis="y")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))

    title = "Share of drafts whose token at a position was accepted, by configuration; the table below has the values"
    return drawing(fill, 3.0, title, "acceptance-title")
