"""The strict sampler: host and device forms agree, and follow the tokens that plain sampling draws."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from speccheck.recorder import use_backends

from specdec.interfaces import SamplerConfig, Scores, VerifyBatch
from specdec.interfaces.row_block import node_depths
from specdec.noise import exponentials
from specdec.samplers.paths import accept_path
from specdec.samplers.strict import StrictSampler
from specdec.sampling_params import SamplingParams

SAMPLER = StrictSampler(SamplerConfig())
VOCAB = 4


def draw(logits: torch.Tensor, params: SamplingParams, seed: int, sample: int, position: int) -> int:
    """What plain sampling draws at a position; the best id, the lowest among equals, at temperature 0."""
    if params.is_greedy:
        return int((logits == logits.max()).nonzero()[0])
    noise = exponentials(*(torch.tensor([v]) for v in (seed, position, sample, 0)), VOCAB)[0]
    return int((noise / torch.softmax(logits, -1).double()).argmin())


def case(seed: int, is_tree: bool, temperatures: list[float]) -> tuple[Scores, VerifyBatch]:
    rng = np.random.default_rng(seed)
    batch = len(temperatures)
    rows = [rng.integers(0, VOCAB, rng.integers(0, 6)).tolist() for _ in range(batch)]
    parents = [[int(rng.integers(-1, j)) if j else -1 for j in range(len(row))] for row in rows]
    total = sum(len(row) + 1 for row in rows)
    logits = torch.from_numpy(rng.integers(-2, 3, (total, VOCAB)).astype(np.float32))  # ties happen
    verify = VerifyBatch(
        nodes=rows,
        num_tokens=rng.integers(1, 100, batch).tolist(),
        seeds=rng.integers(-(2**62), 2**62, batch).tolist(),
        sample_indices=rng.integers(0, 3, batch).tolist(),
        sampling_params=[SamplingParams(temperature=t) for t in temperatures],
        parents=parents if is_tree else None,
    )
    return Scores(logits=logits, raw_logits=logits), verify


@given(
    st.integers(0, 2**32),
    st.booleans(),
    st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=4),
)
@settings(max_examples=200, deadline=None)
def test_the_verdict_is_the_path_that_plain_sampling_takes(seed, is_tree, temperatures) -> None:
    scores, batch = case(seed, is_tree, temperatures)
    verdict = SAMPLER.verify(scores, batch)
    for i, row in enumerate(batch.nodes):
        links = list(range(-1, len(row) - 1)) if batch.parents is None else batch.parents[i]
        paths: list[tuple[list[int], list[int]]] = [([], [])]  # equal siblings are accepted together
        ended = []
        while paths:
            nodes, tokens = paths.pop()
            node, position = (nodes or [-1])[-1], batch.num_tokens[i] + len(tokens)
            logits = scores.logits[batch.row_of(i, node)]
            token = draw(logits, batch.sampling_params[i], batch.seeds[i], batch.sample_indices[i], position)
            fits = [j for j in range(len(row)) if links[j] == node and row[j] == token]
            paths += [([*nodes, j], [*tokens, token]) for j in fits]
            ended.append((nodes, [*tokens, token]))
        most = max(len(nodes) for nodes, _ in ended)
        longest = min((path for path in ended if len(path[0]) == most), key=lambda path: path[0][-1:])
        assert (list(verdict.accepted_nodes[i]), list(verdict.token_ids[i])) == longest
    assert verdict.num_accepted == [len(nodes) for nodes in verdict.accepted_nodes]


@given(st.integers(0, 2**32), st.booleans(), st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_torch_draws_what_compiled_code_draws(seed, is_tree, temperatures) -> None:
    scores, batch = case(seed, is_tree, [*temperatures, 1.0])
    parents = batch.parents
    drawn = SAMPLER._draw_all(scores, batch)
    host = SAMPLER.verify(scores, batch)
    for i, row in enumerate(batch.nodes):
        start = batch.row_starts[i]
        nodes, tokens = accept_path(
            drawn[start : start + len(row) + 1], row, None if parents is None else parents[i]
        )
        assert (nodes, tokens) == (list(host.accepted_nodes[i]), list(host.token_ids[i]))


def test_depths_of_a_tree() -> None:
    assert node_depths(5, [-1, 0, 0, -1, 2]) == [1, 2, 2, 1, 3]
    assert node_depths(3, None) == [1, 2, 3]
    assert node_depths(2, [-1, 0, -9]) == [1, 2]


def test_logits_that_are_not_numbers_are_not_sampled_from() -> None:
    scores, batch = case(1, False, [1.0])
    scores.logits[:, 2] = float("nan")
    with pytest.raises(FloatingPointError, match="not numbers"):
        SAMPLER.verify_with_torch(scores, batch)
    verdict = SAMPLER.verify(scores, batch)
    assert verdict.is_valid is not None
    assert not verdict.is_valid[0]
    assert (list(verdict.accepted_nodes[0]), len(verdict.token_ids[0])) == ([], 1)


def test_a_path_ends_where_logits_are_not_numbers() -> None:
    logits = torch.eye(4)  # the target chooses 0, 1, 2, 3
    logits[2] = float("nan")
    batch = VerifyBatch([(0, 1, 2)], [5], [0], [0], [SamplingParams(temperature=0.0)])
    verdict = SAMPLER.verify(Scores(logits, logits), batch)
    assert list(verdict.accepted_nodes[0]) == [0, 1]
    assert verdict.is_valid == [True, True, False, True]


def test_samplers_are_imported_without_models() -> None:
    code = "import sys, specdec.samplers.strict, specdec.samplers.hooks, specdec.samplers; print('transformers' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, timeout=120).strip() == "False"


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_step_in_which_nobody_samples(monkeypatch, is_compiled) -> None:
    if not is_compiled:
        use_backends(monkeypatch)
    nothing = torch.empty(0, VOCAB)
    verdict = SAMPLER.verify(Scores(nothing, nothing), VerifyBatch([], [], [], [], []))
    assert (list(verdict.accepted_nodes), list(verdict.token_ids)) == ([], [])


@pytest.mark.gpu
@pytest.mark.parametrize("is_tree", [False, True])
def test_on_a_gpu_the_kernels_draw_what_the_host_draws(is_tree) -> None:
    for seed in range(40):
        scores, batch = case(seed, is_tree, [1.0, 0.0, 1.0, 1.0])
        expected = SAMPLER.verify(scores, batch)
        logits = scores.logits.cuda()
        got = SAMPLER.verify(replace(scores, logits=logits, raw_logits=logits), batch)
        assert list(map(list, got.token_ids)) == list(map(list, expected.token_ids))
