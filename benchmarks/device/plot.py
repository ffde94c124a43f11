"""Plot of a run as SVG: the parts of a step for each batch size and k, and tokens per second."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, floor, log2, log10
from typing import Any
from xml.sax.saxutils import escape

_PARTS = (("propose", "#4c9f70"), ("score", "#4472c4"), ("verify", "#e08e45"), ("other", "#b3b3b3"))
_LINES = ("#222222", "#4472c4", "#4c9f70", "#e08e45", "#a05195", "#c44e52", "#7f7f7f", "#17a2b8")
_COLUMNS = 4
_RATES_CELLS = 2
_WIDTH, _HEIGHT = 250, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 30, 36
_HEAD = 62

Points = Sequence[Mapping[str, Any]]


def plot(result: Mapping[str, Any]) -> str:
    """Return the plot of a result that contains part 1.

    Args:
        result: as written to JSON.
    """
    points: Points = result["engine"]["points"]
    batch_sizes = sorted({point["batch_size"] for point in points})
    row, column = divmod(len(batch_sizes), _COLUMNS)
    if column + _RATES_CELLS > _COLUMNS:
        row, column = row + 1, 0
    width, height = _COLUMNS * _WIDTH, _HEAD + (row + 1) * _HEIGHT
    shapes = [f'<rect width="{width}" height="{height}" fill="#ffffff"/>', *_heading(result)]
    shapes += _at(column, row, _rates(points))
    for index, batch_size in enumerate(batch_sizes):
        row, column = divmod(index, _COLUMNS)
        chosen = [point for point in points if point["batch_size"] == batch_size]
        shapes += _at(column, row, _bars(f"batch {batch_size}: ms per step", chosen))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" font-family="sans-serif" font-size="11" fill="#222222">',
            *shapes,
            "</svg>\n",
        ]
    )


def _heading(result: Mapping[str, Any]) -> list[str]:
    environment = result["environment"]
    device = environment["device"].get("name") or environment["cpu"]
    note = " (rehearsal)" if result["is_rehearsal"] else ""
    title = f"Step time and throughput, {device}, {environment['date'][:10]}{note}"
    shapes = [_text(_LEFT, 20, title, size=14)]
    x = _LEFT
    for name, colour in _PARTS:
        shapes += [_rect(x, 32, 10, 10, colour), _text(x + 14, 41, name)]
        x += 70
    shapes += [_line(x, 37, x + 14, 37, "#222222", 2), _text(x + 18, 41, "step, undisturbed")]
    if result["bandwidth"] is not None:
        x += 130
        shapes += [_line(x, 37, x + 14, 37, "#c44e52", 2, "3 2"), _text(x + 18, 41, "bandwidth bound")]
    return shapes


def _bars(title: str, points: Points) -> list[str]:
    """Return one panel with a stacked bar for each k."""
    top = max(max(_step_ms(point), point["step_ms"]) for point in points)
    ticks = _ticks(top)
    plot_width, plot_height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    scale = plot_height / ticks[-1]
    bottom = _TOP + plot_height
    shapes = [_text(_LEFT, _TOP - 10, title, size=12)]
    for tick in ticks:
        y = bottom - tick * scale
        shapes += [
            _line(_LEFT, y, _LEFT + plot_width, y, "#e5e5e5"),
            _text(_LEFT - 5, y + 4, f"{tick:g}", anchor="end"),
        ]
    slot = plot_width / len(points)
    for index, point in enumerate(sorted(points, key=lambda point: int(point["k"]))):
        x, y = _LEFT + (index + 0.15) * slot, bottom
        for name, colour in _PARTS:
            extent = point["split"][f"{name}_ms"] * scale
            y -= extent
            shapes.append(_rect(x, y, 0.7 * slot, extent, colour))
        free = bottom - point["step_ms"] * scale
        shapes.append(_line(x - 2, free, x + 0.7 * slot + 2, free, "#222222", 2))
        if point["bound_ms"] is not None:
            bound = bottom - point["bound_ms"] * scale
            shapes.append(_line(x - 2, bound, x + 0.7 * slot + 2, bound, "#c44e52", 2, "3 2"))
        shapes.append(_text(x + 0.35 * slot, bottom + 14, f"{point['k']}", anchor="middle"))
    shapes.append(_text(_LEFT + plot_width / 2, bottom + 28, "k", anchor="middle"))
    return shapes


def _rates(points: Points) -> list[str]:
    """Return the panel of tokens per second: a line for each k over the batch size, both axes logarithmic."""
    plot_width, plot_height = _RATES_CELLS * _WIDTH - _LEFT - 60, _HEIGHT - _TOP - _BOTTOM
    bottom = _TOP + plot_height
    batch_sizes = sorted({point["batch_size"] for point in points})
    rates = [point["tokens_per_s"] for point in points]
    low, high = floor(log10(min(rates))), ceil(log10(max(rates)))
    high = max(high, low + 1)
    span = max(1.0, log2(batch_sizes[-1] / batch_sizes[0]))

    def place(batch_size: int, rate: float) -> tuple[float, float]:
        x = _LEFT + log2(batch_size / batch_sizes[0]) / span * plot_width
        return x, bottom - (log10(rate) - low) / (high - low) * plot_height

    shapes = [_text(_LEFT, _TOP - 10, "tokens per second by batch size", size=12)]
    for power in range(low, high + 1):
        y = place(batch_sizes[0], 10.0**power)[1]
        shapes += [
            _line(_LEFT, y, _LEFT + plot_width, y, "#e5e5e5"),
            _text(_LEFT - 5, y + 4, _short(10.0**power), anchor="end"),
        ]
    for batch_size in batch_sizes:
        x = place(batch_size, rates[0])[0]
        shapes.append(_text(x, bottom + 14, f"{batch_size}", anchor="middle"))
    for index, k in enumerate(sorted({point["k"] for point in points})):
        colour = _LINES[index % len(_LINES)]
        chosen = sorted((point["batch_size"], point["tokens_per_s"]) for point in points if point["k"] == k)
        places = [place(*pair) for pair in chosen]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        shapes.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        shapes += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in places]
        y = _TOP + 10 + 15 * index
        shapes += [
            _line(_LEFT + plot_width + 10, y - 4, _LEFT + plot_width + 22, y - 4, colour, 2),
            _text(_LEFT + plot_width + 26, y, f"k={k}"),
        ]
    return shapes


def _step_ms(point: Mapping[str, Any]) -> float:
    return float(sum(point["split"][f"{name}_ms"] for name, _ in _PARTS))


def _ticks(top: float) -> list[float]:
    """Return round numbers from 0 to at least `top`."""
    step = 10.0 ** floor(log10(top))
    step *= next(factor for factor in (0.2, 0.5, 1.0, 2.0, 5.0) if top <= 5 * factor * step)
    return [step * index for index in range(ceil(top / step) + 1)]


def _short(number: float) -> str:
    return f"{number / 1000:g}k" if number >= 1000 else f"{number:g}"


def _at(column: int, row: int, shapes: Iterable[str]) -> list[str]:
    return [f'<g transform="translate({column * _WIDTH} {_HEAD + row * _HEIGHT})">', *shapes, "</g>"]


def _rect(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.2f}" fill="{colour}"/>'


def _line(
    x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1, dashes: str | None = None
) -> str:
    dashed = "" if dashes is None else f' stroke-dasharray="{dashes}"'
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke="{colour}" stroke-width="{width}"{dashed}/>'
    )


def _text(x: float, y: float, text: str, *, size: int = 11, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">{escape(text)}</text>'
