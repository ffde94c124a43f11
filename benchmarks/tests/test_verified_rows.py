"""What passes cost by the number of rows: the least of turns, and the whole command with its defaults."""

from __future__ import annotations

import json
import sys

import pytest
import verified_rows
from common.process import BENCHMARKS
from verified_rows import ROWS, SHAPES, least, targets


def test_the_least_time_is_kept_and_the_first_turn_is_not_counted() -> None:
    calls: list[str] = []
    best = least({name: (lambda name=name: calls.append(name)) for name in "ab"}, 3)
    assert calls == ["a", "b"] * 4
    assert set(best) == {"a", "b"}
    assert all(0 <= spent < 1e3 for spent in best.values())


@pytest.mark.parametrize(
    ("rows", "rounds", "most_targets"),
    [
        pytest.param((1, 64), 1, 1, marks=pytest.mark.slow, id="few rows on the best tier"),
        pytest.param(ROWS, 4, 2, marks=pytest.mark.full, id="defaults"),
    ],
)
def test_the_command_runs(rows, rounds, most_targets, tmp_path, monkeypatch) -> None:
    file = tmp_path / "rows.json"
    words = [] if rows == ROWS else ["--rows", *map(str, rows), "--rounds", str(rounds)]
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / "verified_rows.py"), *words, "--json", str(file)])
    monkeypatch.setattr(verified_rows, "targets", lambda: targets()[:most_targets])
    assert verified_rows.main() == 0
    result = json.loads(file.read_text())
    by_case = {(target, case, bits): times for target, case, bits, _, times in result["rows"]}
    assert len(by_case) == len(result["rows"]) == 2 * (1 + len(SHAPES)) * len({case[0] for case in by_case})
    assert result["settings"]["rounds"] == rounds
    assert all(len(times) == len(rows) and min(times) > 0 for times in by_case.values())
    assert all(times[-1] > times[0] for times in by_case.values())
