"""What the table of `never_slower.py` compares, and which goals it calls missed."""

from __future__ import annotations

import pytest
from never_slower import WORKLOADS, Times, contenders_of, rows_of, table


def test_the_table_compares_with_plain_and_with_the_best_fixed_k() -> None:
    contenders = contenders_of({"method": "suffix"}, (4, 24))
    assert [contender.name for contender in contenders] == ["baseline", "k=4", "k=24", "adaptive"]
    assert contenders[-1].config == {"method": "suffix", "num_speculative_tokens": 24, "adaptive": True}
    seconds = {"baseline": 2.0, "k=4": 1.0, "k=24": 1.6, "adaptive": 1.25}
    times = [Times([seconds[contender.name]] * 6, 60, 30) for contender in contenders]
    rows = rows_of("suffix, edit, 0.8", 1, contenders, times, "adaptive")
    assert [row.plain.median for row in rows] == pytest.approx([2.0, 1.25, 1.6])
    assert rows[-1].best is not None
    assert rows[-1].best.median == pytest.approx(0.8)
    assert rows[0].as_dict() == {
        "workload": "suffix, edit, 0.8",
        "batch_size": 1,
        "name": "k=4",
        "tokens_per_step": 2.0,
        "times_plain": [2.0, 2.0, 2.0],
    }
    assert table(rows).endswith("missed: suffix, edit, 0.8, batch 1")
    times[-1].seconds = [1.04] * 6
    assert table(rows_of("w", 1, contenders, times, "adaptive")).endswith("missed: nothing")


def test_there_are_ten_workloads() -> None:
    assert len(WORKLOADS) == 10
    assert len({(*sorted(map(str, method.items())), kind, t) for method, _, kind, t in WORKLOADS}) == 10
