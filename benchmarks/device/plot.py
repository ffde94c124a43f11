"""Plot of a run as SVG: the parts of a step for each batch size and k, and tokens per second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

_PARTS = (("propose", "#4c9f70"), ("score", "#4472c4"), ("verify", "#e08e45"), ("other", "#b3b3b3"))
_PLAIN, _BOUND = "#222222", "#c44e52"
_COLUMNS = 4
_RATES_CELLS = 2

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
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "specdec", "text.parse_math": False}):
        figure = Figure(figsize=(3.2 * _COLUMNS, 0.9 + 2.7 * (row + 1)), layout="constrained")
        grid = figure.add_gridspec(row + 1, _COLUMNS)
        figure.suptitle(_title(result))
        figure.legend(
            handles=_legend(has_bound=result["bandwidth"] is not None), loc="outside lower center", ncols=6
        )
        for index, batch_size in enumerate(batch_sizes):
            axes = figure.add_subplot(grid[divmod(index, _COLUMNS)])
            axes.set_title(f"batch {batch_size}: ms per step")
            _bars(axes, [point for point in points if point["batch_size"] == batch_size])
        _rates(figure.add_subplot(grid[row, column : column + _RATES_CELLS]), points)
        file = StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def _title(result: Mapping[str, Any]) -> str:
    environment = result["environment"]
    device = environment["device"].get("name") or environment["cpu"]
    note = " (rehearsal)" if result["is_rehearsal"] else ""
    return f"Step time and throughput, {device}, {environment['date'][:10]}{note}"


def _legend(*, has_bound: bool) -> list[Patch | Line2D]:
    handles: list[Patch | Line2D] = [Patch(color=colour, label=name) for name, colour in _PARTS]
    handles.append(Line2D([], [], color=_PLAIN, linewidth=2, label="step, not instrumented"))
    if has_bound:
        handles.append(Line2D([], [], color=_BOUND, linewidth=2, linestyle=":", label="bandwidth bound"))
    return handles


def _bars(axes: Axes, points: Points) -> None:
    """Draw a stacked bar for each k."""
    ordered = sorted(points, key=lambda point: int(point["k"]))
    for x, point in enumerate(ordered):
        end = 0.0
        for name, colour in _PARTS:
            axes.bar(x, point["split"][f"{name}_ms"], 0.7, bottom=end, color=colour)
            end += point["split"][f"{name}_ms"]
        axes.hlines(point["step_ms"], x - 0.4, x + 0.4, color=_PLAIN, linewidth=2)
        if point["bound_ms"] is not None:
            axes.hlines(point["bound_ms"], x - 0.4, x + 0.4, color=_BOUND, linewidth=2, linestyle=":")
    axes.set_xticks(range(len(ordered)), [f"{point['k']}" for point in ordered])
    axes.set_xlabel("k")


def _rates(axes: Axes, points: Points) -> None:
    """Draw tokens per second: a line for each k over the batch size, both axes logarithmic."""
    for k in sorted({point["k"] for point in points}):
        chosen = sorted((point["batch_size"], point["tokens_per_s"]) for point in points if point["k"] == k)
        axes.plot(*zip(*chosen, strict=True), marker="o", markersize=3, label=f"k={k}")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    batch_sizes = sorted({point["batch_size"] for point in points})
    axes.set_xticks(batch_sizes, [f"{size}" for size in batch_sizes])
    axes.set_title("tokens per second by batch size")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
