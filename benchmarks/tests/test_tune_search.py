"""What `tune_search.py` compares: the configuration that `tune` chose with the best of an exhaustive search."""

from __future__ import annotations

from typing import Any

import pytest
from benchcheck.engines import Bench, candidate
from tune_search import GOAL, SUBJECTS, prompts_of, row_of

from specdec_bench.tune.candidate import PLAIN
from specdec_bench.tune.pool import Pool
from specdec_bench.tune.stage import Stage

SPEEDUPS = {"first": 1.5, "second": 2.0}


@pytest.mark.parametrize(
    ("config", "chosen", "ratio"),
    [({"method": "second"}, "second", 1.0), ({"method": "first"}, "first", 0.75), (None, "baseline", 0.5)],
)
def test_the_chosen_one_is_compared_with_the_best(config: Any, chosen: str, ratio: float) -> None:
    bench = Bench(SPEEDUPS)
    stage = Stage(1, [PLAIN, *map(candidate, SPEEDUPS)], 10, is_exact=True, clock=bench.clock)
    pool = Pool(bench.make, bench.clock)
    stage.prepare(pool)
    stage.run(pool, [[0], [1], [2]], 1e9)
    report = {"speculative_config": config, "tried": [{"name": chosen}, {"name": "other"}]}
    row = row_of("copied", report, 12.3, stage)
    assert (row["chosen"], row["best"], row["tune_seconds"], row["num_prompts"]) == (chosen, "second", 12, 3)
    assert row["chosen_over_best"] == [pytest.approx(ratio)] * 3
    assert (ratio < GOAL) == (chosen != "second")
    assert list(row["speedups"]) == ["second", "first", "baseline"]


def test_the_workloads_differ_in_text_and_temperature() -> None:
    new, warm = prompts_of("new")
    copied, cold = prompts_of("copied")
    assert (warm, cold) == (0.8, 0.0)
    assert len(set(new)) == len(set(copied)) == len(SUBJECTS)
    assert all("unchanged" in prompt and len(prompt) > 100 for prompt in copied)
