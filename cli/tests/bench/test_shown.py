"""What tables and sentences tell of a speed-up: one statistic, and nothing that may be chance."""

from __future__ import annotations

import re
from typing import Any

import pytest

from specdec_cli.bench.shown import ratio_text, speed_cells
from specdec_cli.bench.table import print_summary
from specdec_cli.demo.report import print_demo


def row(name: str, tokens_per_s: float, *speedup: float, category: str | None = None) -> dict[str, Any]:
    value, low, high = speedup
    found = {
        "name": name,
        "tokens_per_s": tokens_per_s,
        "speedup": value,
        "speedup_low": low,
        "speedup_high": high,
    }
    found |= {
        "mean_acceptance_length": 1.5,
        "drafted_share": 0.5,
        "identical_to_baseline": True,
        "temperature": 0.0,
    }
    return found | {"num_prompts": 2, "distinct_4gram_ratio": 0.5, "category": category}


PLAIN = row("baseline", 219.0, 1.0, 1.0, 1.0)
NOISY = row("ngram k=5", 162.0, 1.28, 0.24, 1.60)
FASTER = row("suffix k=24", 250.0, 1.50, 1.20, 1.80)
SLOWER = row("eagle k=4", 230.0, 0.50, 0.40, 0.60)


@pytest.mark.parametrize("bounds", [(0.24, 1.6), (1.0, 1.6), (0.7, 1.0), (0.999, 1.001)])
def test_bounds_around_one_have_no_point_estimate(bounds: tuple[float, float]) -> None:
    speed, speedup, shown = speed_cells(row("a", 162.0, 1.28, *bounds), PLAIN)
    assert speedup == "none shown"
    assert speed == f"{219 * bounds[0]:.0f}-{219 * bounds[1]:.0f}"
    assert shown == f"{bounds[0]:.2f}-{bounds[1]:.2f}"
    assert ratio_text((1.28, *bounds)) == f"no difference shown [{bounds[0]:.2f}, {bounds[1]:.2f}]"


def test_speed_and_speedup_are_one_statistic() -> None:
    assert speed_cells(PLAIN, PLAIN) == ("219", "1.00x", "-")
    assert speed_cells(FASTER, PLAIN) == ("328", "1.50x", "1.20-1.80")
    assert speed_cells(SLOWER, PLAIN) == ("110", "0.50x", "0.40-0.60")
    assert ratio_text((1.5, 1.2, 1.8)) == "1.50 [1.20, 1.80] times"


def test_tables_tell_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [PLAIN, NOISY, FASTER]
    print_summary(rows)
    warm = [{**each, "temperature": 0.8, "tokens_per_s": 2 * each["tokens_per_s"]} for each in rows]
    print_demo([*rows, *warm], [], {"max_tokens": 8, "rounds": 6, "dtype": "float32", "device": "cpu"})
    out = capsys.readouterr().out
    assert "1.28" not in out
    assert "162" not in out
    lines = [
        re.split(r" {2,}", line.strip()) for line in out.splitlines() if line.startswith(("ngram", "suffix"))
    ]
    assert [line[-6:-3] for line in lines[:1]] == [["53-350", "none shown", "0.24-1.60"]]
    assert lines[1][1:4] == ["328", "1.50x", "1.20-1.80"]
    assert [line[2:4] for line in lines[2:]] == [
        ["53-350", "none shown"],
        ["328", "1.50x"],
        ["105-701", "none shown"],
        ["657", "1.50x"],
    ]
