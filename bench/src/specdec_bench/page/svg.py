"""Shared parts of the charts: elements, scales and series."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, floor, log10

from markupsafe import Markup, escape

WIDTH = 720
NUM_COLOURS = 8
"""Number of series colours that the page's styles define, from `s0` on."""
LONGEST_NAME = 28


def element(name: str, content: object = "", **attributes: object) -> Markup:
    """Return an SVG element with escaped text; `_` in attribute names becomes `-`, and a trailing one is dropped."""
    given = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _number(value))
        for key, value in attributes.items()
    )
    return Markup("<{}{}>{}</{}>").format(Markup(name), given, content, Markup(name))


def text(content: object, x: float, y: float, **attributes: object) -> Markup:
    """Return a line of text that starts at a point, unless `text_anchor` says otherwise."""
    return element("text", escape(content), x=x, y=y, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, **attributes: object) -> Markup:
    """Return a straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, **attributes)


def drawing(parts: Iterable[Markup], height: float, title: str, identifier: str) -> Markup:
    """Return a complete SVG drawing.

    Args:
        parts: its elements, from back to front.
        height: height of the drawing; its width is `WIDTH`.
        title: description for screen readers.
        identifier: id of the title, unique in the page.
    """
    heading = element("title", escape(title), id=identifier)
    return element(
        "svg",
        heading + Markup("").join(parts),
        viewBox=f"0 0 {WIDTH} {height:.0f}",
        role="img",
        aria_labelledby=identifier,
    )


def ticks(largest: float, count: int = 6) -> list[float]:
    """Return about `count` round values from 0 to the first one that is not below `largest`."""
    if largest <= 0:
        return [0.0, 1.0]
    raw = largest / count
    power = 10.0 ** floor(log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    return [round(index * step, 10) for index in range(ceil(largest / step - 1e-9) + 1)]


def series(index: int) -> str:
    """Return the CSS class of the n-th configuration; the baseline has index 0."""
    return f"s{index % NUM_COLOURS}"


def clipped(name: str) -> str:
    """Return a name, shortened to fit the chart; the tables show the full name."""
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "\N{HORIZONTAL ELLIPSIS}"


def plain(value: float) -> str:
    """Return a number without trailing zeros."""
    return f"{value:g}"


def grid(at: Sequence[tuple[float, str]], top: float, bottom: float) -> list[Markup]:
    """Return vertical grid lines with their values below.

    Args:
        at: horizontal positions and labels.
        top: upper end of the lines.
        bottom: lower end of the lines.
    """
    parts = []
    for x, label in at:
        parts.append(line(x, top, x, bottom, class_="grid"))
        parts.append(text(label, x, bottom + 16, class_="tick", text_anchor="middle"))
    return parts


def _number(value: object) -> object:
    return f"{value:.1f}" if isinstance(value, float) else value
