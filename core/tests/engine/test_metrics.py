"""Counters of drafts, of all and by proposer."""

from __future__ import annotations

from specdec.engine.metrics import EngineMetrics
from specdec.metrics import Metric, PerProposer, Vector


def by_name(metrics: EngineMetrics) -> dict[str, Metric]:
    return {metric.name: metric for metric in metrics.snapshot()}


def test_a_draft_counts_for_all_and_for_its_proposer() -> None:
    metrics = EngineMetrics()
    for name, drafted, accepted in (("a", 3, 2), ("b", 1, 1), ("a", 2, 0), ("b", 0, 0)):
        metrics.count_draft(name, drafted, accepted)
    assert (metrics.num_drafts, metrics.num_draft_tokens, metrics.num_accepted_tokens) == (3, 6, 3)
    found = by_name(metrics)
    assert found["vllm:spec_decode_num_accepted_tokens_per_pos"] == Vector(
        "vllm:spec_decode_num_accepted_tokens_per_pos", [2, 1, 0]
    )
    expected = {"drafts": (2, 1), "draft_tokens": (5, 1), "accepted_tokens": (2, 1)}
    for what, (first, second) in expected.items():
        name = f"specdec:proposer_{what}"
        assert found[name] == PerProposer(name, {"a": first, "b": second})
    assert metrics.by_proposer["a"].accepted_per_position == [1, 1, 0]


def test_a_proposer_that_gives_ever_new_names_takes_no_more_memory() -> None:
    metrics = EngineMetrics()
    for number in range(1000):
        metrics.count_draft(f"name-{number}", 2, 1)
    metrics.count_draft("name-3", 2, 2)
    assert len(metrics.by_proposer) == 33
    assert metrics.by_proposer["others"].num_drafts == 968
    assert metrics.by_proposer["name-3"].num_accepted_tokens == 3
    assert metrics.num_drafts == 1001
