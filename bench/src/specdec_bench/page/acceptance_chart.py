"""Chart: acceptance rate of drafted tokens, by position in the draft."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from specdec_bench.page.svg import WIDTH, clipped, drawing, element, line, series, text

LEFT, RIGHT, TOP, HEIGHT = 50, 220, 14, 240
MARKS = (0.0, 0.25, 0.5, 0.75, 1.0)
MOST_LABELS = 12
LABEL = 15
"""Height of a name beside the end of its line."""
DASHES = ("none", "7 3", "2 3", "9 3 2 3")


def acceptance_chart(rows: Sequence[Mapping[str, Any]]) -> Markup:
    """Return a chart with one line per configuration, over positions from 1.

    Args:
        rows: one per configuration, the baseline first; those without drafts have no line.
    """
    longest = max(len(row["acceptance_per_position"]) for row in rows)
    across = WIDTH - LEFT - RIGHT
    gap = across / max(1, longest - 1)
    parts: list[Markup] = []
    for mark in MARKS:
        y = TOP + HEIGHT * (1 - mark)
        parts.append(line(LEFT, y, LEFT + across, y, class_="grid"))
        parts.append(text(f"{100 * mark:.0f} %", LEFT - 8, y + 4, class_="tick", text_anchor="end"))
    every = -(-longest // MOST_LABELS)
    for position in range(0, longest, every):
        x = LEFT + gap * position
        parts.append(text(position + 1, x, TOP + HEIGHT + 18, class_="tick", text_anchor="middle"))
    parts.append(
        text(
            "position in the draft", LEFT + across / 2, TOP + HEIGHT + 38, class_="tick", text_anchor="middle"
        )
    )
    ends: list[tuple[float, float, int, str]] = []
    for index, row in enumerate(rows):
        places = [
            (LEFT + gap * position, TOP + HEIGHT * (1 - rate))
            for position, rate in enumerate(row["acceptance_per_position"])
        ]
        if not places:
            continue
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dash = DASHES[index % len(DASHES)]
        parts.append(
            element("polyline", points=points, class_=f"{series(index)} rate", stroke_dasharray=dash)
        )
        parts += [element("circle", cx=x, cy=y, r=3, class_=f"{series(index)} point") for x, y in places]
        ends.append((places[-1][1], places[-1][0], index, row["name"]))
    parts += _names(ends)
    title = "Share of drafts whose token at a position was accepted, by configuration; the table below has the values"
    return drawing(parts, TOP + HEIGHT + 50, title, "acceptance-title")


def _names(ends: Sequence[tuple[float, float, int, str]]) -> list[Markup]:
    """Return the names beside the ends of their lines, moved apart if lines end close to each other."""
    parts: list[Markup] = []
    ordered = sorted(ends)
    overflow = TOP + HEIGHT - LABEL * (len(ordered) - 1)
    last = float("-inf")
    for place, (y, x, index, name) in enumerate(ordered):
        last = max(last + LABEL, min(y, overflow + LABEL * place))
        at = WIDTH - RIGHT + 26
        parts.append(line(x + 5, y, at - 4, last, class_=f"{series(index)} leader"))
        parts.append(text(clipped(name), at, last + 4, class_="label"))
    return parts
