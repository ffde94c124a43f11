"""Drafts whose lengths are known and whose ids are read with the verdict, or when something on the host needs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from pretend import CUDA, PretendDevice
from speccheck.engines import engine_of, make_llm, proposer_of, scripted, tokens_of

from specdec import LLM, SamplingParams
from specdec.engine.containment.draft import DraftError, check_draft, select_rows
from specdec.interfaces import DeviceNodes, Draft, DraftSampling

VOCAB = 9
GARBAGE = 2**40
"""Stands behind the nodes of a row, where anything may stand."""
IDS = torch.tensor([[1, 2, 3], [4, GARBAGE, -7], [VOCAB, -1, 8]])


def unread(num_nodes: tuple[int, ...] = (3, 1, 2)) -> Draft:
    return Draft(IDS.clone(), num_nodes=num_nodes)


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[DeviceNodes]:
    """The nodes that were read by themselves."""
    reads: list[DeviceNodes] = []
    read = DeviceNodes.read

    def counted(nodes: DeviceNodes) -> Any:
        if nodes.num_outside is None and any(nodes.num_nodes):
            reads.append(nodes)
        return read(nodes)

    monkeypatch.setattr(DeviceNodes, "read", counted)
    return reads


def test_lengths_are_known_before_the_ids(monkeypatch) -> None:
    reads = count_reads(monkeypatch)
    draft, num_cut, flaw = check_draft(unread(), [3, 3, 3], VOCAB)
    assert (draft.num_nodes, num_cut, flaw) == ([3, 1, 2], 0, None)
    assert (draft.rows, draft.parents) == (((), (), ()), None)
    assert not reads
    known = draft.read()
    assert known.rows == ((1, 2, 3), (4,), (8, 0))  # the nearest ids of the vocabulary
    assert draft.read() == known.read()
    assert len(reads) == 1
    assert draft.device_nodes is not None
    assert draft.device_nodes.num_outside == 2
    assert draft.device_nodes.scored(torch.device("cpu")).view(3, 3)[:, :2].tolist() == [
        [1, 2],
        [4, 8],
        [8, 0],
    ]


def test_caps_cut_and_rows_are_selected(monkeypatch) -> None:
    reads = count_reads(monkeypatch)
    draft, num_cut, flaw = check_draft(unread(), [2, 0, 2], VOCAB)
    assert (draft.num_nodes, num_cut, flaw) == ([2, 0, 2], 2, "more nodes than max_nodes")
    for indices in ([0, 1], [2, 0], []):
        chosen = select_rows(draft, indices)
        assert chosen.num_nodes == [draft.num_nodes[index] for index in indices]
        assert not reads
        assert chosen.read().rows == tuple(((1, 2), (), (8, 0))[index] for index in indices)
        assert len(reads) == any(chosen.num_nodes)
        reads.clear()


def test_ids_that_came_with_a_verdict_are_not_read_again(monkeypatch) -> None:
    reads = count_reads(monkeypatch)
    draft, _, _ = check_draft(unread(), [3, 3, 3], VOCAB)
    assert draft.device_nodes is not None
    draft.device_nodes.take(draft.device_nodes.nodes.numpy())
    assert (draft.read().rows, draft.device_nodes.num_outside) == (((1, 2, 3), (4,), (8, 0)), 2)
    assert not reads


def test_where_there_are_no_nodes_nothing_is_read() -> None:
    nodes = DeviceNodes(torch.empty(2, 2, 3, dtype=torch.int64, device="meta"), [0, 0], VOCAB)
    assert nodes.read() == (((), ()), ((), ()))  # reading a tensor without data would raise


def test_parents_are_read_with_the_ids(monkeypatch) -> None:
    reads = count_reads(monkeypatch)
    parents = torch.tensor([[-1, 0, 2], [GARBAGE, -1, 0], [-7, -1, 0]])
    offered = replace(unread(), parents=parents, confidence=torch.full((3, 3), 0.5))
    draft, _, flaw = check_draft(offered, [3, 3, 3], VOCAB)
    assert flaw is None
    assert draft.confidence is None
    assert not reads
    assert draft.device_nodes is not None
    assert draft.device_nodes.is_tree
    assert draft.read().parents == ((-1, 0, 1), (-1,), (-1, -1))  # the nearest that precede
    assert draft.read().rows == ((1, 2, 3), (4,), (8, 0))
    assert len(reads) == 1
    assert draft.device_nodes.num_outside == 5
    assert select_rows(draft, [2, 0]).read().parents == ((-1, -1), (-1, 0, 1))
    chains, num_cut, flaw = check_draft(offered, [3, 3, 3], VOCAB, supports_trees=False)
    assert (chains.rows, chains.parents, num_cut) == (((1, 2), (), ()), None, 4)
    assert flaw == "row 0: node 2 has parent 2, which makes a tree: declare Capability.TREE"
    known, num_cut, flaw = check_draft(offered, [3, 3, 3], VOCAB, reads=True)
    assert (known.rows, known.parents, num_cut) == (((1, 2), (), ()), ((-1, 0), (), ()), 4)
    assert known.confidence == ((0.5, 0.5), (), ())
    assert flaw == "row 0: node 2 has parent 2, which does not precede it"


@pytest.mark.parametrize("is_moved", [False, True])
def test_nodes_of_two_tensors_are_copied_once(is_moved: bool) -> None:
    given, parents, memory = IDS.clone(), torch.tensor([[-1, 0, 1]] * 3), torch.full((20,), -9)
    ids = DeviceNodes([given, parents], [3, 1, 2], VOCAB)
    assert (ids.is_tree, ids.width) == (True, 3)
    expected = torch.stack([given, parents])
    if is_moved:
        ids.copy_to(memory)
        assert torch.equal(memory[:18].view(2, 3, 3), expected)
    assert torch.equal(ids.nodes, expected)
    given.zero_()
    parents.zero_()
    assert torch.equal(ids.nodes, expected)
    ids.copy_to(memory)
    assert torch.equal(ids.nodes, expected)
    assert memory[18:].tolist() == [-9, -9]
    assert ids.read() == (((1, 2, 3), (4,), (8, 0)), ((-1, 0, 1), (-1,), (-1, 0)))


def test_nothing_is_the_plugins_afterwards() -> None:
    offered = unread()
    draft, _, _ = check_draft(offered, [3, 3, 3], VOCAB)
    offered.token_ids.zero_()
    assert draft.read().rows[0] == (1, 2, 3)


def drawn() -> Draft:
    """The same with q, but for the last row."""
    probs = torch.softmax(torch.randn(3, 4, VOCAB, generator=torch.Generator().manual_seed(0)), -1)
    has_probs = torch.tensor([True, True, False])
    return replace(unread(), node_probs=probs, sampling=DraftSampling.IID, has_probs=has_probs)


@pytest.mark.parametrize("flaw", [None, torch.nan, torch.inf, -0.4, 0.5])
def test_drawn_nodes_keep_their_q_on_a_device(flaw, monkeypatch) -> None:
    """A row of q that is no distribution becomes 0, and its node padding."""
    reads, given = count_reads(monkeypatch), drawn()
    probs, ids = given.node_probs.clone(), IDS.clone()
    if flaw is not None:
        given.node_probs[0, 1, 4] = flaw
        probs[0, 1], ids[0, 1] = 0.0, -1
    with PretendDevice():
        offered = replace(given, token_ids=given.token_ids.to(CUDA), node_probs=given.node_probs.to(CUDA))
        draft, _, _ = check_draft(offered, [3, 3, 3], VOCAB)
        offered.node_probs.zero_()
        offered.token_ids.zero_()
        for indices in ([0, 1, 2], [2, 0, 0], []):
            chosen = select_rows(draft, indices).drawn
            assert torch.equal(chosen.node_probs.cpu(), probs[indices])
            assert torch.equal(chosen.token_ids.cpu(), ids[indices])
            assert chosen.has_probs.tolist() == [index != 2 for index in indices]
        assert not reads
        assert draft.read().rows[0] == (1, 2 if flaw is None else 0, 3)
    assert draft.device_nodes.num_outside == 2 + (flaw is not None)


@pytest.mark.parametrize(
    "reads",
    [True, {}, {"node_probs": drawn().node_probs.bfloat16()}, {"parents": torch.tensor([[-1, 0, 1]] * 3)}],
)
def test_drawn_nodes_are_read_where_they_have_to_be(reads) -> None:
    offered = drawn() if reads is True else replace(drawn(), **reads)
    draft, _, _ = check_draft(offered, [3, 3, 3], VOCAB, reads=reads is True)
    kept = draft.drawn.node_probs.clone()
    offered.node_probs.zero_()
    offered.token_ids.zero_()
    assert draft.device_nodes is None
    assert draft.rows == ((1, 2, 3), (4,), ())
    assert torch.equal(draft.drawn.node_probs, kept)
    assert torch.equal(draft.drawn.token_ids, IDS)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_nodes": (3, 1)},
        {"num_nodes": (3, 1, 4)},
        {"num_nodes": (3, -1, 2)},
        {"num_nodes": [3, 1, 2]},
    ],
    ids=lambda wrong: "-".join(wrong),
)
def test_what_it_cannot_be_is_refused(wrong) -> None:
    with pytest.raises(DraftError, match="num_nodes"):
        check_draft(replace(unread(), **wrong), [3, 3, 3], VOCAB)


def drafting(llm: LLM, spoil: Callable[[torch.Tensor], torch.Tensor] = torch.clone) -> LLM:
    """Let the engine's scripted proposer give lengths, and ids after `spoil`."""
    proposer = proposer_of(llm)
    plain = proposer.draft

    def draft(batch) -> Draft:
        made = plain(batch)
        lengths = tuple(len(row) for row in made.rows)
        is_node = torch.arange(made.token_ids.shape[1]) < torch.tensor(lengths)[:, None]
        return Draft(torch.where(is_node, spoil(made.token_ids), GARBAGE), num_nodes=lengths)

    proposer.draft = draft
    return llm


CASES = {
    "greedy": {"temperature": 0.0},
    "sampled": {},
    "penalties": {"repetition_penalty": 1.3, "frequency_penalty": 0.2},
    "biased": {"logit_bias": {3: 1.0}, "logprobs": 2},
}


@pytest.mark.parametrize("sampler", ["strict", "probabilistic"])
@pytest.mark.parametrize("case", CASES)
def test_output_is_that_without_drafts(subject, case, sampler) -> None:
    params = SamplingParams(
        **{"temperature": 0.8, "seed": 7, "max_tokens": 12, "ignore_eos": True} | CASES[case]
    )
    expected = tokens_of(make_llm(subject.model), subject.prompts, params)
    texts = [[*p, *e] for p, e in zip(subject.prompts, expected, strict=True)]
    llm = drafting(make_llm(subject.model, scripted(k=3, texts=texts, rejection_sample_method=sampler)))
    got = tokens_of(llm, subject.prompts, params)
    metrics = engine_of(llm).metrics
    assert (metrics.proposer_errors, metrics.proposer_nodes_cut) == (0, 0)
    assert metrics.num_accepted_tokens > 0
    if sampler == "strict" or case == "greedy":
        assert got == expected


def test_ids_outside_the_vocabulary_cost_only_themselves(subject) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
    expected = tokens_of(make_llm(subject.model), subject.prompts, params)
    texts = [[*p, *e] for p, e in zip(subject.prompts, expected, strict=True)]

    def spoil(ids: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.arange(ids.shape[1]) == 1, GARBAGE, ids)

    llm = drafting(make_llm(subject.model, scripted(k=3, texts=texts)), spoil)
    assert tokens_of(llm, subject.prompts, params) == expected
    metrics = engine_of(llm).metrics
    assert metrics.num_accepted_tokens > 0
    assert (before := metrics.proposer_nodes_cut) > 0
    forced = params.model_copy(update={"allowed_token_ids": [3], "max_tokens": 60})
    beside = [
        params.model_copy(update={"max_tokens": 4}),
        forced,
    ]  # a forced token in every step with a draft
    tokens_of(llm, subject.prompts[:2], beside)
    assert engine_of(llm).metrics.proposer_nodes_cut > before
    strict = drafting(make_llm(subject.model, scripted(k=3, texts=texts), strict_drafts=True), spoil)
    with pytest.raises(DraftError, match="an id or a parent that is impossible"):
        strict.generate(subject.prompts, params)
