"""Proposers that keep every promise pass, and what does not apply to them is said, not passed over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from kit_subjects.toys import TOYS, Recaller, Tree, kit_config

from specdec.interfaces import Capability
from specdec_testing import ProposerConformance
from specdec_testing.proposers import engine
from specdec_testing.runner import PromiseVerdict, run_suite

NEEDS = {
    "test_tokens_follow_their_q": Capability.DRAFT_PROBS,
    "test_q_is_a_distribution": Capability.DRAFT_PROBS,
    "test_no_draw_is_used_twice": Capability.DRAFT_PROBS,
    "test_q_is_declared": Capability.DRAFT_PROBS,
    "test_trees_are_declared": Capability.TREE,
}
"""Tests that ask for something only some proposers claim."""


@pytest.mark.parametrize(
    "toy", [pytest.param(toy, marks=pytest.mark.full if toy == "siblings" else ()) for toy in TOYS]
)
@pytest.mark.sampled(2, slow=2)
def test_a_right_proposer_keeps_every_promise(toy: str) -> None:
    suite = type(
        "TestToy", (ProposerConformance,), {"method": TOYS[toy], "config": kit_config(), "model": "tiny"}
    )
    reports = {report.name: report for report in run_suite(suite)}
    broken = {
        name: report.reason for name, report in reports.items() if report.verdict is PromiseVerdict.BROKEN
    }
    assert broken == {}
    left_out = {name for name, report in reports.items() if report.verdict is PromiseVerdict.NOT_APPLICABLE}
    sure = "test_confidence_is_a_probability"
    assert (sure in left_out) == (not issubclass(TOYS[toy], Tree))
    left_out -= {sure}
    assert left_out == {name for name, needed in NEEDS.items() if needed not in TOYS[toy].capabilities}
    assert all("is not declared" in reports[name].reason for name in left_out)
    names = list(reports)
    assert len(names) > 25
    assert names[:2] == ["test_nothing_of_the_kit_is_replaced", "test_capabilities_fit_together"]
    assert names[-1] == "test_cost"
    assert reports["test_cost"].facts["microseconds_per_draft_at_batch_1"] > 0


class Counted(Recaller):
    """Counts the tokens it drafts."""

    num_drafted: ClassVar[int] = 0

    def guess(self, text: Sequence[int], count: int) -> list[int]:
        found = super().guess(text, count)
        Counted.num_drafted += len(found)
        return found


def test_one_that_learns_from_finished_requests_alone_drafts_in_the_engine(monkeypatch) -> None:
    suite = type(
        "TestCounted", (ProposerConformance,), {"method": Counted, "config": kit_config(), "model": "tiny"}
    )
    seen: list[int] = []
    run = engine.generate

    def generate(*arguments: Any, **more: Any) -> Any:
        Counted.num_drafted = 0
        tokens = run(*arguments, **more)
        seen.append(Counted.num_drafted)
        return tokens

    monkeypatch.setattr(engine, "generate", generate)
    [report] = run_suite(suite, only=["test_greedy_text_is_that_of_plain_decoding"])
    assert report.verdict is PromiseVerdict.KEPT
    assert seen[0] > 0
