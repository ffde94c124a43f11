"""Rounds and rows: who has a turn when, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specdec.interfaces import Scores, Verdict, VerifyBatch
from specdec.samplers.strict import StrictSampler
from specdec_cli.bench import BASELINE, Comparison, Contender, Session, Workload
from specdec_runtime.loading.target import LoadedTarget

KEYS = [
    *("name", "method", "config", "num_prompts", "batch_size", "output_tokens", "wall_s", "tokens_per_s"),
    *("speedup", "speedup_low", "speedup_high"),
    *("mean_acceptance_length", "acceptance_rate", "acceptance_per_position"),
    *("propose_ms", "score_ms", "verify_ms", "other_ms", "forward_ms", "ttft_ms", "peak_memory_mb"),
    *("identical_to_baseline", "distinct_4gram_ratio"),
]


@pytest.fixture(scope="module")
def rows(target: LoadedTarget, workload: Workload, knowing: dict[str, Any]) -> list[dict[str, Any]]:
    contenders = [
        BASELINE,
        Contender("knowing", "x", knowing),
        Contender("guessing", "x", {**knowing, "texts": []}),
    ]
    comparison = Comparison(target, workload, contenders)
    comparison.run_round()
    comparison.run_round()
    return comparison.rows()


def test_every_row_has_exactly_these_keys(rows: list[dict[str, Any]]) -> None:
    assert [list(row) for row in rows] == [KEYS] * 3


def test_the_baseline_is_its_own_measure(rows: list[dict[str, Any]]) -> None:
    row = rows[0]
    assert (row["name"], row["method"], row["config"]) == ("baseline", None, None)
    assert (row["speedup"], row["speedup_low"], row["speedup_high"]) == (1.0, 1.0, 1.0)
    assert (row["mean_acceptance_length"], row["acceptance_rate"], row["acceptance_per_position"]) == (
        1.0,
        0.0,
        [],
    )
    assert row["identical_to_baseline"] is True


def test_values_fit_together(rows: list[dict[str, Any]], workload: Workload, texts: list[list[int]]) -> None:
    num_generated = sum(map(len, texts)) - sum(map(len, workload.prompts))
    for row in rows:
        assert row["num_prompts"] == 3
        assert row["batch_size"] == 1
        assert row["output_tokens"] == num_generated
        assert row["tokens_per_s"] == pytest.approx(row["output_tokens"] / row["wall_s"])
        assert row["speedup_low"] <= row["speedup"] <= row["speedup_high"]
        assert row["forward_ms"] > 0
        assert row["identical_to_baseline"] is True
        assert row["distinct_4gram_ratio"] == rows[0]["distinct_4gram_ratio"] > 0.5
        assert row["ttft_ms"] > 0
        assert all(row[f"{part}_ms"] > 0 for part in ("propose", "score", "verify", "other"))


def test_acceptance_is_counted(rows: list[dict[str, Any]]) -> None:
    knowing, guessing = rows[1], rows[2]
    assert knowing["acceptance_rate"] > 0.9 > 0.2 > guessing["acceptance_rate"]
    assert knowing["mean_acceptance_length"] == pytest.approx(1 + sum(knowing["acceptance_per_position"]))
    assert len(knowing["acceptance_per_position"]) == 3
    assert knowing["acceptance_per_position"] == sorted(knowing["acceptance_per_position"], reverse=True)
    assert guessing["mean_acceptance_length"] < 1.5


def test_the_order_is_another_one_in_every_round(
    target: LoadedTarget, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    make = Session.__init__

    def spy(self: Session, target: Any, contender: Contender, workload: Any) -> None:
        order.append(contender.name)
        make(self, target, contender, workload)

    monkeypatch.setattr(Session, "__init__", spy)
    short = replace(workload, prompts=workload.prompts[:1], max_tokens=2)
    done: list[int] = []
    comparison = Comparison(
        target, short, [BASELINE, Contender("b"), Contender("c")], on_done=lambda: done.append(1)
    )
    for _ in range(3):
        comparison.run_round()
    assert order == ["baseline", "b", "c", "b", "c", "baseline", "c", "baseline", "b"]
    assert len(done) == 9
    assert [len(turns) for turns in comparison.rounds] == [3, 3, 3]


def accept_everything(self: StrictSampler, scores: Scores, batch: VerifyBatch) -> Verdict:
    """Believe every draft: what a verifier must never do."""
    best = scores.logits.argmax(-1).tolist()
    nodes = [list(range(len(row))) for row in batch.nodes]
    last = [best[batch.row_of(i, len(row) - 1)] for i, row in enumerate(batch.nodes)]
    return Verdict(nodes, [[*row, token] for row, token in zip(batch.nodes, last, strict=True)])


def test_a_text_that_changes_is_told(
    target: LoadedTarget, workload: Workload, knowing: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StrictSampler, "verify", accept_everything)
    comparison = Comparison(target, workload, [BASELINE, Contender("wrong", "x", {**knowing, "texts": []})])
    comparison.run_round()
    baseline, wrong = comparison.rows()
    assert baseline["identical_to_baseline"] is True
    assert wrong["identical_to_baseline"] is False
    assert wrong["acceptance_rate"] == 1.0
