"""Trees are for proposers that declare them beside samplers that declare them; everybody else gets chains."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from speccheck.engines import engine_of, greedy, make_llm, scripted, tokens_of

from specdec import ConfigError, Draft, DraftSampling
from specdec.engine.containment.draft import DraftError, check_draft
from specdec.samplers.strict import StrictSampler

SAMPLER = """
from specdec import hookimpl
from specdec.samplers.strict import StrictSampler

class ChainsOnly(StrictSampler):
    name = "chains_only"
    capabilities = frozenset()

@hookimpl
def specdec_register_samplers():
    return ChainsOnly
"""

CHAIN, BROOM = [-1, 0, 1], [-1, 0, -1]


@pytest.fixture
def chains_only(site) -> str:
    site.install("chains", {"samplers": {"chains_only": "chains_only_rule"}}, {"chains_only_rule": SAMPLER})
    return "chains_only"


def test_a_tree_proposer_beside_a_sampler_of_chains_is_refused_at_load(subject, chains_only) -> None:
    speculation = scripted(texts=subject.texts, shape="tree", rejection_sample_method=chains_only)
    with pytest.raises(
        ConfigError, match="drafts trees in this configuration, and sampler 'chains_only' takes only chains"
    ):
        make_llm(subject.model, speculation)


@pytest.mark.parametrize("side", ["proposer", "sampler"])
def test_trees_from_where_none_were_declared_are_cut_and_change_nothing(
    subject, monkeypatch, chains_only, side
) -> None:
    from speccheck.proposers import Scripted

    monkeypatch.setattr(Scripted, "capabilities", frozenset())
    method = chains_only if side == "sampler" else StrictSampler.name
    speculation = scripted(k=5, texts=subject.texts, shape="tree", rejection_sample_method=method)
    llm = make_llm(subject.model, speculation)
    assert tokens_of(llm, subject.prompts, greedy(32)) == subject.expected
    metrics = engine_of(llm).metrics
    assert metrics.proposer_nodes_cut > 0
    assert metrics.num_accepted_tokens > 0, "what is a chain of the tree is still used"
    raising = make_llm(subject.model, speculation | {"on_proposer_error": "raise"})
    for made in (raising, make_llm(subject.model, speculation, strict_drafts=True)):
        with pytest.raises(DraftError, match=r"'scripted' .* makes a tree: declare Capability.TREE"):
            tokens_of(made, subject.prompts, greedy(32))


def test_a_row_is_cut_before_its_first_node_that_makes_it_no_chain() -> None:
    draft = Draft.from_lists([[1, 2, 3], [1, 2, 3], [1]], [CHAIN, BROOM, [-1]])
    checked, num_cut, flaw = check_draft(draft, [9] * 3, 128, supports_trees=False)
    assert flaw == "row 1: node 2 has parent -1, which makes a tree: declare Capability.TREE"
    assert (checked.rows, checked.parents, num_cut) == (((1, 2, 3), (1, 2), (1,)), None, 1)
    whole = check_draft(draft, [9] * 3, 128)[0]
    assert whole.parents is not None
    assert whole.parents == (tuple(CHAIN), tuple(BROOM), (-1,))


def test_a_chain_of_a_drawn_tree_keeps_its_q() -> None:
    """Whether a node is kept depends on parents alone, never on what was drawn."""
    q = torch.full((1, 4, 8), 1 / 8)
    draft = replace(Draft.from_lists([[1, 9, 3]], [BROOM]), node_probs=q, sampling=DraftSampling.IID)
    checked, num_cut, _ = check_draft(draft, [9], 8, supports_trees=False)
    assert (checked.rows, checked.parents, num_cut) == (((1, 0),), None, 2)
    assert torch.equal(checked.drawn.node_probs, q)
