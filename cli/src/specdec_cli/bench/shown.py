"""Speeds as people read them: tokens per second and speed-up are one statistic, and chance is not told as a speed-up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdec_cli.bench.speedup import Bounded

NO_DIFFERENCE = "none shown"


def is_shown(low: float, high: float) -> bool:
    """Return whether the bounds of a speed-up exclude 1; a single round or question has none, and its value is all there is."""
    return low == high or not low <= 1.0 <= high


def speed_cells(row: Mapping[str, Any], plain: Mapping[str, Any], to: str = "-") -> tuple[str, str, str]:
    """Return the cells `tokens/s`, `speed-up` and `95 %` of a row.

    Tokens per second are those of plain decoding times the speed-up, which compares turns of the same round: the row's own
    (`tokens_per_s` in JSON) may come from rounds in which the machine was slower. Where the bounds include 1 there is no
    speed-up to tell, and tokens per second are what the bounds allow.

    Args:
        row: the row.
        plain: plain decoding's, on the same prompts.
        to: stands between bounds.
    """
    value, low, high = (row[key] for key in ("speedup", "speedup_low", "speedup_high"))
    base = plain["tokens_per_s"]
    bounds = "-" if low == high else f"{low:.2f}{to}{high:.2f}"
    if is_shown(low, high):
        return f"{base * value:.0f}", f"{value:.2f}x", bounds
    return f"{base * low:.0f}{to}{base * high:.0f}", NO_DIFFERENCE, bounds


def ratio_text(speedup: Bounded) -> str:
    """Return a speed-up and its bounds for a sentence about a configuration beside plain decoding."""
    value, low, high = speedup
    bounds = f"[{low:.2f}, {high:.2f}]"
    return f"{value:.2f} {bounds} times" if is_shown(low, high) else f"no difference shown {bounds}"
