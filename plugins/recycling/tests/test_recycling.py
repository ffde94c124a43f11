"""Trees of successors, what is remembered, and the method in engines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import specdec_zoo
from specdec import LLM, ConfigError, FinishReason, RequestOutput, SamplingParams
from specdec.interfaces import TargetTopK
from specdec_hosting import HostTarget, open_proposer
from specdec_plugin_recycling.successors import SuccessorTable, successors_of
from specdec_plugin_recycling.tree import Tree, grow
from specdec_testing import ProposerConformance

EXAMPLE = f"{Path(__file__).parents[3] / 'examples/recycling.py'}:Recycling"


def table() -> SuccessorTable:
    known = SuccessorTable({9: ((1,), (0.9,))})
    known.set(1, ((2, 3), (0.6, 0.3)), 1)
    known.set(2, ((4, 1), (0.5, 0.4)), 2)
    known.set(3, ((5,), (0.9,)), 3)
    return known


def test_nodes_are_the_most_probable_ones_parents_first() -> None:
    # 2: 0.6, 3: 0.3, 4 after 2: 0.3, 5 after 3: 0.27, 1 after 2: 0.24, 2 after that: 0.144
    tree = grow(table(), 1, 6, 0.0, is_chain=False)
    nodes, parents = tree.token_ids, tree.parents
    assert sorted(nodes[:3]) == [2, 3, 4]
    assert nodes[3:] == [5, 1, 2]
    assert all(parent < node for node, parent in enumerate(parents))
    assert [nodes[p] if p >= 0 else None for p in parents[3:]] == [3, 2, 1]
    assert grow(table(), 1, 6, 0.25, is_chain=False).token_ids == nodes[:4]
    assert grow(table(), 1, 3, 0.0, is_chain=False).token_ids == nodes[:3]
    assert grow(table(), 77, 3, 0.0, is_chain=False) == grow(table(), 1, 0, 0.0, is_chain=False) == Tree()


def test_a_chain_follows_the_most_probable() -> None:
    assert grow(table(), 1, 9, 0.0, is_chain=True) == Tree([2, 4], [-1, 0], [0.6, 0.5])
    assert grow(table(), 9, 2, 0.0, is_chain=True) == Tree([1, 2], [-1, 0], [0.9, 0.6])


def test_what_was_seen_later_is_forgotten() -> None:
    known = table()
    known.set(1, ((8,), (1.0,)), 5)
    known.forget(3)
    assert known.get(1) == ((2, 3), (0.6, 0.3))
    assert known.get(3) == ((5,), (0.9,))
    known.forget(2)
    assert known.get(2) == ((4, 1), (0.5, 0.4))
    assert known.get(3) is None
    known.forget(0)
    assert known.get(1) is None
    assert known.get(9) == ((1,), (0.9,))


def test_what_follows_a_token_in_the_text_is_its_successor_until_the_target_lists_some() -> None:
    known = SuccessorTable({9: ((1,), (0.9,))})
    known.add_text([7, 8], 2)
    known.add_text([8, 9, 7, 5], 5)  # 7 and 9 have successors
    assert [known.get(token) for token in (7, 8, 9)] == [((8,), (0.3,)), ((9,), (0.3,)), ((1,), (0.9,))]
    known.forget(3)
    assert known.get(8) == ((9,), (0.3,))
    known.forget(2)
    assert [known.get(token) for token in (7, 8)] == [((8,), (0.3,)), None]
    known.forget(1)
    assert known.get(7) is None


def test_log_probabilities_become_probabilities() -> None:
    top = TargetTopK(
        [0, 1],
        [-1, 2],
        np.array([7, 8], np.int32),
        np.array([[1], [2]], np.int32),
        np.log(np.array([[0.5], [0.25]])),
    )
    assert [(row, node, token, ids) for row, node, token, (ids, _) in successors_of(top)] == [
        (0, -1, 7, (1,)), (1, 2, 8, (2,)),
    ]  # fmt: skip
    assert [probabilities[0] for *_, (_, probabilities) in successors_of(top)] == pytest.approx([0.5, 0.25])


def accepted(outputs: list[RequestOutput]) -> int:
    return sum(output.metrics.num_accepted_tokens for output in outputs)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("method", ["recycling", EXAMPLE], ids=["plugin", "example"])
@pytest.mark.sampled(1, slow=1)
def test_the_zoo_says_the_same_in_fewer_steps(method: str, temperature: float) -> None:
    prompts = [prompt["prompt"] for prompt in specdec_zoo.prompts(4)]
    params = SamplingParams(temperature=temperature, max_tokens=48, seed=3)
    plain = LLM("zoo", dtype="float32").generate(prompts, params)
    llm = LLM("zoo", dtype="float32", speculative_config={"method": method, "num_speculative_tokens": 6})
    outputs = llm.generate(prompts, params)
    assert [o.outputs[0].token_ids for o in outputs] == [o.outputs[0].token_ids for o in plain]
    assert accepted(outputs) > 30
    again = llm.generate(prompts, params)
    assert [o.outputs[0].token_ids for o in again] == [o.outputs[0].token_ids for o in plain]
    if method == "recycling":  # it knows what the first answers taught
        assert accepted(again) > accepted(outputs)


@pytest.mark.parametrize("method", ["recycling", EXAMPLE], ids=["plugin", "example"])
def test_other_engines_get_chains_from_the_text(method: str) -> None:
    """An engine that lists no ids and verifies no trees is no error."""
    target = HostTarget(vocab_size=50, max_model_len=64)
    hosted = open_proposer({"method": method, "num_speculative_tokens": 3}, target, host="a test")
    hosted.start("a", [5, 6, 7, 8, 5])
    draft = hosted.propose(["a"])
    assert draft.parents is None
    assert list(draft.rows[0])[:2] == [6, 7]
    hosted.finish(["a"], FinishReason.STOP)


def test_more_successors_than_ids_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_successors = 60 is above the vocabulary of 50"):
        open_proposer(
            {"method": "recycling", "num_speculative_tokens": 3, "num_successors": 60},
            HostTarget(vocab_size=50, max_model_len=64),
            host="a test",
        )


@pytest.mark.slow
def test_in_a_composite() -> None:
    members = [
        {"method": "suffix"},
        {"method": "recycling", "num_speculative_tokens": 4, "num_successors": 3},
    ]
    prompts = [prompt["prompt"] for prompt in specdec_zoo.prompts(4)]
    params = SamplingParams(temperature=0.0, max_tokens=48, return_draft_steps=True)
    plain = LLM("zoo", dtype="float32").generate(prompts, params)
    llm = LLM(
        "zoo",
        dtype="float32",
        speculative_config={"method": "composite", "policy": "cascade", "proposers": members},
    )
    outputs = llm.generate(prompts, params)
    assert [o.outputs[0].token_ids for o in outputs] == [o.outputs[0].token_ids for o in plain]
    steps = [step for output in outputs for step in output.outputs[0].draft_steps]
    assert sum(len(step.accepted) for step in steps if step.proposer == "recycling") > 10


class TestExample(ProposerConformance):
    """The example in one file keeps the promises too."""

    method = EXAMPLE
    config = {"num_speculative_tokens": 6}
    model = "tiny"
