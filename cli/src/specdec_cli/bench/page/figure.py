"""Matplotlib figures as inline SVG with the colours of the page's style sheet, so that one figure serves light and dark."""

from __future__ import annotations

import re
from collections.abc import Callable
from io import StringIO
from typing import Any

from markupsafe import Markup, escape
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

WIDTH = 7.2
"""Inches."""
NUM_COLOURS = 8
"""Number of series colours that the page's styles define, from `c0` on."""
LONGEST_NAME = 28

_NAMES = (
    *("ink", "faint", "rule", "propose", "score", "verify", "other"),
    *(f"c{i}" for i in range(NUM_COLOURS)),
)
_STAND_INS = {name: f"#0001{index:02x}" for index, name in enumerate(_NAMES)}
"""Colours that stand for a variable of the style sheet while Matplotlib draws."""
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "specdec",
    "text.parse_math": False,
    "font.size": 8.5,
    "axes.axisbelow": True,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.spines.bottom": False,
    "xtick.major.size": 0.0,
    "ytick.major.size": 0.0,
    "text.color": _STAND_INS["ink"],
    "axes.labelcolor": _STAND_INS["faint"],
    "xtick.color": _STAND_INS["faint"],
    "ytick.color": _STAND_INS["ink"],
    "grid.color": _STAND_INS["rule"],
    "legend.frameon": False,
}
"""Any, because Matplotlib's type of a dict of settings is a literal of all their names."""


def colour(name: str) -> str:
    """Return the colour that becomes `var(--name)` in the drawing."""
    return _STAND_INS[name]


def series(index: int) -> str:
    """Return the colour of the n-th configuration; the baseline has index 0."""
    return colour(f"c{index % NUM_COLOURS}")


def clipped(name: str) -> str:
    """Return a name, shortened to fit the chart; the tables show the full name."""
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "\N{HORIZONTAL ELLIPSIS}"


def drawing(fill: Callable[[Axes], None], height: float, title: str, identifier: str) -> Markup:
    """Return a complete SVG drawing.

    Args:
        fill: draws on the axes.
        height: of the drawing, in inches.
        title: description for screen readers.
        identifier: id of the title, unique in the page.
    """
    with rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.subplots()
        fill(axes)
        for artist in figure.findobj():
            artist.set_clip_on(
                False
            )  # clip paths have ids, of which a page of several drawings would repeat some
        file = StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    svg = file.getvalue()
    for name, stand_in in _STAND_INS.items():
        svg = svg.replace(stand_in, f"var(--{name})")
    content = re.sub(r'<g id="[^"]*"', "<g", svg[svg.index("<defs>") :])
    heading = Markup('<title id="{}">{}</title>').format(identifier, escape(title))
    box = Markup('<svg viewBox="0 0 {:g} {:g}" role="img" aria-labelledby="{}">').format(
        72 * WIDTH, 72 * height, identifier
    )
    return box + heading + Markup(content)
