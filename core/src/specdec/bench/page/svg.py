"""What the charts share: elements, scales and series."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, floor, log10

from markupsafe import Markup, escape

WIDTH = 720
NUM_COLOURS = 8
"""Colours of series that the page's styles define, `s0` and on."""
LONGEST_NAME = 28


def element(name: str, content: object = "", **attributes: object) -> Markup:
    """Return an SVG element; text is escaped, and `_` in names of attributes stands for `-`, a last one for nothing."""
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
    """Return a whole picture.

    Args:
        parts: its elements, from the back to the front.
        height: of the picture; its width is `WIDTH`.
        title: what it shows, for those who hear the page.
        identifier: unique in the page.
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
    """Return round values from 0 to the first one that is not below the largest, about `count` of them."""
    if largest <= 0:
        return [0.0, 1.0]
    raw = largest / count
    power = 10.0 ** floor(log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    return [round(index * step, 10) for index in range(ceil(largest / step - 1e-9) + 1)]


def series(index: int) -> str:
    """Return the class of the n-th configuration; the baseline is number 0."""
    return f"s{index % NUM_COLOURS}"


def clipped(name: str) -> str:
    """Return a name as long as there is room for; the tables have all of it."""
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "\N{HORIZONTAL ELLIPSIS}"


def plain(value: float) -> str:
    """Return a number without needless zeros."""
    return f"{value:g}"


def grid(at: Sequence[tuple[float, str]], top: float, bottom: float) -> list[Markup]:
    """Return vertical lines with their values beneath.

    Args:
        at: horizontal positions and values.
        top: where lines begin.
        bottom: where they end.
    """
    parts = []
    for x, label in at:
        parts.append(line(x, top, x, bottom, class_="grid"))
        parts.append(text(label, x, bottom + 16, class_="tick", text_anchor="middle"))
    return parts


def _number(value: object) -> object:
    return f"{value:.1f}" if isinstance(value, float) else value
