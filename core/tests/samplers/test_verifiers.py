"""What every verifier does with batches of any make: shapes, ragged rows, greedy rows, seeds, and what is not a number."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from speccheck.recorder import use_backends

from specdec import SamplingParams, registry
from specdec.engine.containment.draft import select_rows
from specdec.interfaces import (
    Capability,
    CheckedDraft,
    DraftSampling,
    DrawnNodes,
    Sampler,
    SamplerConfig,
    Scores,
    VerifyBatch,
)
from specdec.noise import Stream, exponentials, node_word
from specdec.samplers.block import BlockSampler, block_scheme
from specdec.samplers.decision import decide
from specdec.samplers.emission import draw_tokens
from specdec.samplers.padded_drafts import pad_drafts
from specdec.samplers.paths import accept_path
from specdec.samplers.probabilistic import ProbabilisticSampler
from specdec.samplers.rejection import rejection_scheme
from specdec.samplers.strict import StrictSampler
from specdec.samplers.synthetic import SyntheticConfig, SyntheticSampler
from specdec.samplers.typical import TypicalConfig, TypicalSampler
from specdec_kernels.cpu.verification.schemes import compiled_scheme
from specdec_testing.support.checked_draft import with_draft

LOSSLESS: list[Sampler] = [ProbabilisticSampler(SamplerConfig()), BlockSampler(SamplerConfig())]
LOSSY: list[Sampler] = [
    TypicalSampler(TypicalConfig()),
    SyntheticSampler(SyntheticConfig(synthetic_acceptance_rates=(0.8, 0.5, 0.2))),
]
SAMPLERS = [*LOSSLESS, *LOSSY]
VOCAB = 5
Problem = tuple[Scores, VerifyBatch]


def a_problem(
    seed: int,
    temperatures: list[float],
    *,
    is_tree: bool = False,
    sampling: DraftSampling = DraftSampling.DETERMINISTIC,
    width_of_q: int = VOCAB,
    sizes: list[int] | None = None,
) -> Problem:
    """A batch of ragged rows with forbidden ids and, where drawn, some rows without q and some ids outside the vocabulary."""
    rng = np.random.default_rng(seed)
    batch = len(temperatures)
    sizes = sizes or [int(n) for n in rng.integers(0, 6, batch)]
    is_drawn = sampling is not DraftSampling.DETERMINISTIC
    width = max(sizes) + 2  # a draft may be wider than what is left of it
    drawn = rng.integers(0, VOCAB + 2 if is_drawn else VOCAB, (batch, width))
    parents = [[int(rng.integers(-1, j)) if j else -1 for j in range(n)] for n in sizes]
    rows = [[int(t) if t < VOCAB else 0 for t in drawn[i, :n]] for i, n in enumerate(sizes)]
    logits = torch.from_numpy(rng.normal(0, 2, (sum(sizes) + batch, VOCAB)).astype(np.float32))
    logits[torch.from_numpy(rng.random(logits.shape) < 0.2)] = -torch.inf
    logits[:, 0] = 0.5
    probs = rng.gamma(0.5, size=(batch, width + 1, width_of_q)) * (
        rng.random((batch, width + 1, width_of_q)) < 0.8
    )
    probs[..., 0] += 0.1
    node_probs = torch.from_numpy(probs / probs.sum(-1, keepdims=True)).float()
    has_probs = torch.from_numpy(rng.random(batch) < 0.7)
    verify = VerifyBatch(
        nodes=rows,
        num_tokens=rng.integers(1, 100, batch).tolist(),
        seeds=rng.integers(-(2**62), 2**62, batch).tolist(),
        sample_indices=rng.integers(0, 3, batch).tolist(),
        sampling_params=[SamplingParams(temperature=t) for t in temperatures],
        parents=parents if is_tree else None,
        drawn=DrawnNodes(torch.from_numpy(drawn), node_probs, sampling, has_probs) if is_drawn else None,
    )
    return Scores(logits, logits), verify


def with_q(batch: VerifyBatch, **tensors: torch.Tensor) -> VerifyBatch:
    assert batch.drawn is not None
    return replace(batch, drawn=replace(batch.drawn, **tensors))


any_problem = st.builds(
    a_problem,
    st.integers(0, 2**32),
    st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=5),
    is_tree=st.booleans(),
    sampling=st.sampled_from(DraftSampling),
    width_of_q=st.sampled_from([VOCAB - 2, VOCAB, VOCAB + 3]),
)


def links(batch: VerifyBatch, i: int) -> list[int]:
    return list(range(-1, batch.num_nodes[i] - 1)) if batch.parents is None else batch.parents[i]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: s.name)
@given(problem=any_problem)
@settings(max_examples=60, deadline=None)
def test_verdicts_are_paths_of_possible_tokens(sampler, problem) -> None:
    scores, batch = problem
    logits = scores.logits.clone()
    verdict = sampler.verify(scores, batch)
    assert torch.equal(scores.logits, logits)  # nothing is written to what others read
    assert len(verdict.accepted_nodes) == len(verdict.token_ids) == len(batch.num_nodes)
    for i, row in enumerate(batch.nodes):
        nodes, tokens = list(verdict.accepted_nodes[i]), list(verdict.token_ids[i])
        parents = links(batch, i)
        assert [parents[node] for node in nodes] == [-1, *nodes][: len(nodes)]
        assert tokens[:-1] == [row[node] for node in nodes]
        assert all(type(value) is int for value in (*nodes, *tokens))
        drawn = batch.drawn
        is_drawn = drawn is not None and bool(drawn.has_probs[i])
        for before, node, token in zip([-1, *nodes], [*nodes, None], tokens, strict=True):
            if sampler.name != "synthetic" or node is None:
                assert scores.logits[batch.row_of(i, before), token] > -torch.inf
            if (
                sampler.is_lossless
                and is_drawn
                and node is not None
                and not batch.sampling_params[i].is_greedy
            ):
                assert (
                    int(drawn.token_ids[i, node]) == token
                )  # not the stand-in of an id outside the vocabulary
                assert drawn.node_probs[i, before + 1, token] > 0


@pytest.mark.parametrize("sampler", [*LOSSLESS, LOSSY[0]], ids=lambda s: s.name)
@given(problem=any_problem)
@settings(max_examples=60, deadline=None)
def test_greedy_rows_take_the_longest_path_of_best_tokens(sampler, problem) -> None:
    """Whatever q says, alone or beside sampled rows; ties go to the lowest id."""
    scores, batch = problem
    scores = replace(scores, logits=scores.logits.round())
    best = [[int((row == row.max()).nonzero()[0]) for row in scores.logits]][0]
    verdict = sampler.verify(scores, batch)
    for i, row in enumerate(batch.nodes):
        if batch.sampling_params[i].is_greedy:
            start = batch.row_starts[i]
            expected = accept_path(best[start : start + len(row) + 1], row, links(batch, i))
            nodes, tokens = verdict.accepted_nodes[i], verdict.token_ids[i]
            if sampler.name == "typical":  # among equal siblings it takes the one that leads further
                assert len(nodes) >= len(expected[0])
                assert tokens == [best[start + node + 1] for node in (-1, *nodes)]
            else:
                assert (nodes, tokens) == expected


def taken(problem: Problem, order: list[int]) -> Problem:
    """Return some rows of a problem, in any order."""
    scores, batch = problem
    pieces = [scores.logits[batch.row_starts[i] :][: batch.num_nodes[i] + 1] for i in order]
    draft = select_rows(CheckedDraft(tuple(batch.nodes), batch.parents, batch.drawn), order)
    lists = ("num_tokens", "seeds", "sample_indices", "sampling_params")
    chosen = replace(batch, **{name: [getattr(batch, name)[i] for i in order] for name in lists})
    return Scores(torch.cat(pieces), torch.cat(pieces)), with_draft(chosen, draft)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: s.name)
@given(problem=any_problem, data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_seed_gives_the_same_verdict_whatever_the_batch_and_order(sampler, problem, data) -> None:
    count = len(problem[1].num_nodes)
    order = data.draw(st.permutations(range(count)))[: data.draw(st.integers(1, count))]
    whole = sampler.verify(*problem)
    part = sampler.verify(*taken(problem, order))
    assert part.token_ids == [whole.token_ids[i] for i in order]
    assert part.accepted_nodes == [whole.accepted_nodes[i] for i in order]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: s.name)
def test_another_seed_sample_or_step_gives_another_verdict(sampler) -> None:
    problem = a_problem(4, [1.0] * 40, sizes=[3] * 40)
    first = sampler.verify(*problem).token_ids
    for field in ("seeds", "sample_indices", "num_tokens"):
        moved = replace(problem[1], **{field: [value + 1 for value in getattr(problem[1], field)]})
        assert sampler.verify(problem[0], moved).token_ids != first
    assert sampler.verify(*problem).token_ids == first


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: s.name)
def test_empty_drafts_and_empty_batches(sampler) -> None:
    for sizes in ([0], [0, 0, 0]):
        for sampling in DraftSampling:
            scores, batch = a_problem(1, [1.0] * len(sizes), sampling=sampling, sizes=sizes)
            verdict = sampler.verify(scores, batch)
            assert verdict.num_accepted == sizes
            assert [len(row) for row in verdict.token_ids] == [1] * len(sizes)
    nothing = torch.empty(0, VOCAB)
    batch = VerifyBatch([], [], [], [], [])
    assert sampler.verify(Scores(nothing, nothing), batch).token_ids == []


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: s.name)
def test_logits_that_are_not_numbers_are_not_sampled_from(sampler) -> None:
    scores, batch = a_problem(1, [1.0, 1.0], sizes=[2, 1])
    scores.logits[:, 2] = float("nan")
    with pytest.raises(FloatingPointError, match="not numbers"):
        sampler.verify_with_torch(scores, batch)
    valid = sampler.verify(scores, batch).is_valid
    assert valid is not None
    assert not any(valid)


LAWS = {
    "probabilistic": rejection_scheme,
    "block": block_scheme,
    "probabilistic, compiled": partial(compiled_scheme, is_block=False),
    "block, compiled": partial(compiled_scheme, is_block=True),
}


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("is_tree", [False, True])
def test_a_residual_without_mass_falls_back_to_p(name, is_tree) -> None:
    """p = q and a draw that rejects all the same cannot happen; a scheme asked for it answers with p."""
    scores, batch = a_problem(9, [1.0], sampling=DraftSampling.IID, sizes=[2], is_tree=is_tree)
    probs = torch.softmax(scores.logits, -1)
    drawn = DrawnNodes(torch.tensor([[0, 0]]), probs[None], DraftSampling.IID)
    batch = replace(batch, nodes=[(0, 0)], parents=[(-1, 0)] if is_tree else None, drawn=drawn)
    trial = pad_drafts(scores, batch)
    law = LAWS[name](trial)
    for stop in (-1, 0, 1):
        assert torch.equal(law.emission(torch.tensor([stop])).float(), probs[stop + 1][None])
    almost_1 = torch.full((1, 2), 1 - 2.0**-33, dtype=torch.float64)
    assert decide(law, almost_1, trial).tolist() == [1]


@pytest.mark.parametrize("name", LAWS)
def test_a_node_after_a_forbidden_one_never_passes_however_small_its_q(name) -> None:
    logits = torch.tensor([[0.0, 0.5, 0.5], [0.5, 0.25, 0.25], [0.5, 0.25, 0.25]]).log()
    q = torch.tensor([[[0.5, 0.25, 0.25], [1e-40, 0.5, 0.5], [1.0, 0.0, 0.0]]])
    drawn = DrawnNodes(torch.zeros(1, 2, dtype=torch.int64), q, DraftSampling.IID)
    batch = replace(a_problem(1, [1.0], sizes=[2])[1], nodes=[(0, 0)], drawn=drawn)
    trial = pad_drafts(Scores(logits, logits), batch)
    lowest = torch.full((1, 2), 2.0**-33, dtype=torch.float64)
    assert decide(LAWS[name](trial), lowest, trial).tolist() == [-1]


@pytest.mark.parametrize("name", ["probabilistic", "block"])
def test_a_nan_in_q_rejects(name) -> None:
    scores, batch = a_problem(9, [1.0] * 3, sampling=DraftSampling.IID, sizes=[2, 1, 2])
    probs = batch.drawn.node_probs.clone()
    probs[:, :2] = torch.nan
    trial = pad_drafts(scores, with_q(batch, node_probs=probs, has_probs=None))
    lowest = torch.full((3, 2), 2.0**-33, dtype=torch.float64)
    assert decide(LAWS[name](trial), lowest, trial).tolist() == [-1] * 3


@pytest.mark.parametrize("name", ["probabilistic", "block"])
@given(problem=any_problem)
@settings(max_examples=120, deadline=None)
def test_the_compiled_law_is_that_of_torch(name, problem) -> None:
    scores, batch = problem
    assume(max(batch.num_nodes) > 0)
    scores = replace(scores, logits=scores.logits.double())
    if batch.drawn is not None:
        wide = batch.drawn.node_probs.double()
        batch = with_q(batch, node_probs=wide / wide.sum(-1, keepdim=True))
    trial = pad_drafts(scores, batch)
    law, compiled = LAWS[name](trial), LAWS[f"{name}, compiled"](trial)
    assert law.rule is compiled.rule
    assert (law.thresholds - compiled.thresholds).abs().max() < 1e-12
    for stop in range(-1, max(batch.num_nodes)):
        stops = torch.tensor([min(stop, count - 1) for count in batch.num_nodes])
        weights, others = (
            made / made.sum(-1, keepdim=True) for made in (law.emission(stops), compiled.emission(stops))
        )
        chance = torch.cat((torch.ones(len(stops), 1).double(), law.thresholds), 1).gather(
            1, stops[:, None] + 1
        )
        assert ((weights - others) * chance).abs().max() < 1e-9  # nobody stops where the chance is 0
    uniforms = torch.rand(
        law.thresholds.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    assert torch.equal(decide(law, uniforms, trial), decide(compiled, uniforms, trial))


@pytest.mark.parametrize("sampler", LOSSLESS, ids=lambda s: s.name)
def test_half_precision_q_is_normalised(sampler) -> None:
    scores, batch = a_problem(3, [1.0] * 30, sampling=DraftSampling.IID, sizes=[2] * 30)
    batch = with_q(batch, node_probs=batch.drawn.node_probs.half())
    wide = batch.drawn.node_probs.float()
    same = with_q(batch, node_probs=wide / wide.sum(-1, keepdim=True))
    assert sampler.verify(scores, batch) == sampler.verify(scores, same)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: s.name)
@given(problem=any_problem)
@settings(max_examples=60, deadline=None)
def test_compiled_verdicts_are_those_of_torch(sampler, problem) -> None:
    scores, batch = problem
    scores = replace(scores, logits=scores.logits.double())
    compiled = sampler.verify(scores, batch)
    with pytest.MonkeyPatch.context() as patch:
        use_backends(patch)
        assert sampler.verify(scores, batch) == compiled


def test_q_that_somebody_could_train_is_only_read() -> None:
    scores, batch = a_problem(3, [1.0] * 8, sampling=DraftSampling.IID, sizes=[2] * 8)
    trainable = with_q(batch, node_probs=batch.drawn.node_probs.clone().requires_grad_())
    for sampler in SAMPLERS:
        assert sampler.verify(scores, trainable) == sampler.verify(scores, batch)


@pytest.mark.gpu
@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: s.name)
@pytest.mark.parametrize("is_tree", [False, True])
@pytest.mark.parametrize("sampling", DraftSampling)
def test_a_gpu_decides_what_the_host_decides(sampler, is_tree, sampling) -> None:
    for seed in range(10):
        scores, batch = a_problem(seed, [1.0, 0.0, 1.0, 1.0], is_tree=is_tree, sampling=sampling)
        scores = replace(scores, logits=scores.logits.double())
        there = batch
        if batch.drawn is not None:
            tensors = ("token_ids", "node_probs", "has_probs")
            there = with_q(batch, **{name: getattr(batch.drawn, name).cuda() for name in tensors})
        verdict = sampler.verify(replace(scores, logits=scores.logits.cuda()), there)
        assert all(verdict.is_valid or ())  # which the host says of rows that are not
        assert replace(verdict, is_valid=None) == sampler.verify(scores, batch)


def test_a_draw_says_where_logits_are_not_numbers() -> None:
    batch = a_problem(1, [1.0, 1.0], sizes=[2, 1])[1]
    weights = torch.ones(2, VOCAB)
    weights[1, 3] = float("nan")
    stops, tokens = draw_tokens(weights, torch.tensor([-1, 0]), batch)
    assert stops == [-1, 0]
    assert tokens[0] >= 0
    assert tokens[1] == -1


def test_the_last_token_is_drawn_with_noise_of_the_node_where_its_path_stops() -> None:
    batch = a_problem(1, [1.0, 1.0], sizes=[2, 1])[1]
    _, tokens = draw_tokens(torch.ones(2, 1000), torch.tensor([1, -1]), batch)
    keys = (torch.tensor(each) for each in (batch.seeds, batch.num_tokens, batch.sample_indices))
    words = torch.tensor([node_word(Stream.RESIDUAL, place) for place in (2, 0)])
    assert tokens == exponentials(*keys, words, 1000).argmin(-1).tolist()


def test_drafts_without_q_are_the_same_to_both_verifiers_and_stand_as_often_as_under_strict() -> None:
    strict = StrictSampler(SamplerConfig())
    problem = a_problem(7, [1.0] * 4000, is_tree=True)
    verdicts = [sampler.verify(*problem) for sampler in (*LOSSLESS, strict)]
    assert verdicts[0] == verdicts[1]
    means = [np.mean(verdict.num_accepted) for verdict in verdicts]
    assert abs(means[0] - means[2]) < 0.05


def test_samplers_come_through_the_registry_with_what_they_promise() -> None:
    assert {s.name: registry.sampler(s.name) for s in SAMPLERS} == {s.name: type(s) for s in SAMPLERS}
    assert registry.sampler("standard") is ProbabilisticSampler
    for sampler in SAMPLERS:
        assert Capability.TREE in sampler.capabilities
        assert (Capability.DRAFT_PROBS in sampler.capabilities) == sampler.is_lossless
    assert [s.is_lossless for s in SAMPLERS] == [True, True, False, False]
