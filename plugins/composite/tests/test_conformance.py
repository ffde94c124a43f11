"""Composites keep the promises of proposers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from specdec.interfaces import CheckedDraft
from specdec_plugin_composite import Choice, CompositeProposer, Offer, Policy, Round
from specdec_plugin_composite.assemble import drawn_rows
from specdec_testing import ProposerConformance
from specdec_testing.runner import PromiseVerdict, run_suite

COPIES = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
HEAD = {"method": "eagle3", "model": "zoo", "num_speculative_tokens": 3}
DRAFT = {"method": "draft_model", "model": "zoo", "num_speculative_tokens": 3}
DRAWN = {"rejection_sample_method": "probabilistic"}


@pytest.mark.few_promises
class TestCopies(ProposerConformance):
    method = "composite"
    config = {"policy": "cascade", "proposers": [{"method": "suffix"}, COPIES]}


class TestTreeBesideChain(ProposerConformance):
    method = "composite"
    config = {"policy": "longest", "proposers": [{"method": "suffix", "use_tree_spec": True}, COPIES]}


@pytest.mark.few_promises
class TestHead(ProposerConformance):
    method = "composite"
    config = {"policy": "cascade", "proposers": [COPIES, HEAD]}


@pytest.mark.few_promises
class TestDrawn(ProposerConformance):
    method = "composite"
    config = {"policy": "cascade", "proposers": [{"method": "suffix"}, HEAD], **DRAWN}


@pytest.mark.few_promises
class TestChoose(ProposerConformance):
    method = "composite"
    config = {"proposers": [{"method": "suffix"}, HEAD]}


class TestChooseDrawn(ProposerConformance):
    method = "composite"
    config = {"proposers": [{"method": "suffix"}, HEAD], **DRAWN}


@pytest.mark.few_promises
class TestExtend(ProposerConformance):
    method = "composite"
    config = {"policy": "extend", "proposers": [COPIES, DRAFT]}


class TestMerge(ProposerConformance):
    method = "composite"
    config = {"policy": "merge", "proposers": [{"method": "suffix"}, COPIES]}


def suite(config: dict[str, Any], method: Any = "composite") -> type[ProposerConformance]:
    return type("TestMade", (ProposerConformance,), {"method": method, "config": config, "model": "zoo"})


@pytest.mark.slow
def test_auto_keeps_the_promises_too() -> None:
    """But for its memory, which is that of `TestChoose`: its heads make theirs when they are first tried, one after another."""
    made = type("TestAuto", (ProposerConformance,), {"method": "auto", "model": "zoo"})
    names = [
        n for n in dir(made) if n.startswith("test_") and n != "test_aborted_requests_leave_nothing_behind"
    ]
    reports = run_suite(made, only=names)
    assert {r.name: r.reason for r in reports if r.verdict is PromiseVerdict.BROKEN} == {}
    assert sum(report.verdict is PromiseVerdict.KEPT for report in reports) > 12


class RarerOfTwoDraws(Policy):
    """Looks at the drafts of two members, and takes the one with the rarer first token."""

    name = "rarer_of_two_draws"

    @classmethod
    def is_unseen(cls, member: int, num_members: int) -> bool:
        """Return True, so that its members draw."""
        return True

    def draft(self, turn: Round) -> list[Offer | None]:
        """Return the draft whose first id is higher, which in this tokenizer is the rarer one."""
        return [
            max(filter(None, pair), key=_first_id, default=None)
            for pair in zip(turn.offers(0), turn.offers(1), strict=True)
        ]


def _first_id(offer: Offer) -> int:
    return offer.token_ids[0]


class KeepsQ(CompositeProposer):
    """Reports the q of the member for drafts that the policy has looked at."""

    def _with_q(
        self, turn: Round, choices: Sequence[Choice], drafts: dict[int, CheckedDraft]
    ) -> dict[int, CheckedDraft]:
        chosen = {
            row: drafts[choice.member] for row, choice in enumerate(choices) if isinstance(choice, Offer)
        }
        return {row: draft for row, draft in chosen.items() if row in drawn_rows(draft)}


@pytest.mark.full  # 20,000 drafts; test_distribution has the same mutant
def test_a_policy_that_keeps_q_after_looking_is_caught() -> None:
    keys = {"proposers": [HEAD, DRAFT], "policy": f"{__file__}:RarerOfTwoDraws", **DRAWN}
    [report] = run_suite(suite(keys, KeepsQ), only=["test_tokens_follow_their_q"])
    assert report.verdict is PromiseVerdict.BROKEN
    assert "tokens do not follow q" in report.reason


def test_of_a_policy_that_looks_no_draft_carries_q() -> None:
    """Whatever the policy does: the same one, in a composite as it is."""
    keys = {"proposers": [HEAD, DRAFT], "policy": f"{__file__}:RarerOfTwoDraws", **DRAWN}
    [report] = run_suite(suite(keys), only=["test_tokens_follow_their_q"])
    assert report.verdict is PromiseVerdict.BROKEN
    assert report.reason == "DRAFT_PROBS is declared and no draft came with q"
