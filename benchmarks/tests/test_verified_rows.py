"""What passes cost by the number of rows: the least of turns, and the whole command with its defaults."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from common.process import BENCHMARKS
from verified_rows import ROWS, SHAPES, least


def test_the_least_time_is_kept_and_the_first_turn_is_not_counted() -> None:
    calls: list[str] = []
    best = least({name: (lambda name=name: calls.append(name)) for name in "ab"}, 3)
    assert calls == ["a", "b"] * 4
    assert set(best) == {"a", "b"}
    assert all(0 <= spent < 1e3 for spent in best.values())


@pytest.mark.slow
def test_the_command_runs_with_its_defaults(tmp_path) -> None:
    file = tmp_path / "rows.json"
    command = [sys.executable, str(BENCHMARKS / "verified_rows.py"), "--json", str(file)]
    subprocess.run(command, check=True)
    result = json.loads(file.read_text())
    by_case = {(target, case, bits): times for target, case, bits, _, times in result["rows"]}
    assert len(by_case) == len(result["rows"]) == 2 * (1 + len(SHAPES)) * len({case[0] for case in by_case})
    assert all(len(times) == len(ROWS) and min(times) > 0 for times in by_case.values())
    assert all(times[-1] > times[0] for times in by_case.values())
