"""Rounds with stub workers: real processes, no model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from common.case import Case, result_of, run_case, start_case
from common.pool import Pool
from common.process import WorkerError
from common.results import as_dict, table
from common.rounds import joined
from common.variant import Variant
from workers.stub_worker import tokens_after

PROMPTS = [[1, 2, 3], [4], [5, 6]]


@pytest.fixture
def pool() -> Iterator[Pool]:
    with Pool(Path("nowhere"), max_model_len=64, max_num_seqs=2) as pool:
        yield pool


def stub(config: str, **settings: object) -> Variant:
    return Variant.make("stub", config, "float32", settings)


def test_the_slower_one_is_slower(pool: Pool) -> None:
    fast, slow = stub("fast", seconds_per_token=0.004), stub("slow", seconds_per_token=0.02)
    result = run_case(Case("float32", 2, PROMPTS, ((fast, slow),)), pool, 5, 3, lambda _: 1.0)
    (row,) = result.rows
    assert row.ratio is not None
    assert row.ratio.median > 1.0
    assert row.ratio.num_pairs == 3
    measured = result.measurements["stub fast"]
    assert measured.token_ids == [tokens_after(prompt, 5) for prompt in PROMPTS]
    assert measured.counters == {"num_batches": 2}
    assert measured.idle_cpu_s <= 0.02 * measured.idle_s + 0.02
    assert result.warnings == []
    assert "| stub fast | stub slow |" in table([result])
    assert as_dict({}, {}, [result])["cases"]


def test_rounds_of_several_starts_are_one_measurement() -> None:
    case = Case("float32", 2, PROMPTS, ((stub("fast"), stub("slow")),))
    starts = []
    for _ in range(3):
        with Pool(Path("nowhere"), max_model_len=64, max_num_seqs=2) as fresh:
            starts.append(start_case(case, fresh, 5, 2))
    result = result_of(case, starts, lambda _: 1.0)
    assert result.rows[0].ratio is not None
    assert result.rows[0].ratio.num_pairs == 6
    measured = result.measurements["stub fast"]
    assert measured.wall_s == [
        wall_s for start in starts for wall_s in start.measurements["stub fast"].wall_s
    ]
    assert measured.idle_s == pytest.approx(sum(s.measurements["stub fast"].idle_s for s in starts))
    assert measured.is_repeatable
    starts[2].measurements["stub fast"].token_ids[0][0] += 1
    assert not joined([start.measurements for start in starts])["stub fast"].is_repeatable
    assert len(starts[0].measurements["stub fast"].wall_s) == 2


def test_no_ratio_without_the_same_tokens(pool: Pool) -> None:
    right, wrong = stub("right"), stub("wrong", wrong_at=3)
    result = run_case(Case("float32", 1, PROMPTS, ((right, wrong),)), pool, 5, 1, lambda _: 1.0)
    assert result.rows[0].ratio is None
    shown = table([result])
    assert "GATE FAILED" in shown
    assert shown.count("DIVERGENCE") == 3


def test_an_error_says_what_the_worker_printed(pool: Pool) -> None:
    worker = pool.get(stub("fails", fail_on=4))
    assert worker.generate([[1]], 2)["token_ids"] == [tokens_after([1], 2)]
    with pytest.raises(WorkerError, match=r"(?s)told to fail on 4.*Traceback"):
        worker.generate([[4]], 2)


def test_an_engine_that_cannot_be_loaded(pool: Pool) -> None:
    with pytest.raises(WorkerError, match="No module named"):
        pool.get(Variant.make("no_such", "x", "float32"))


def test_one_process_per_variant(pool: Pool) -> None:
    assert pool.get(stub("a")) is pool.get(stub("a"))
    assert pool.get(stub("a")) is not pool.get(stub("a", seconds_per_token=1))
