"""The samplers that do not keep the target's distribution: typical acceptance, and acceptance at given rates."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from lawcheck.one_step import first_tokens
from lawcheck.world import batch_of

from specdec import ConfigError, SamplingParams
from specdec.config import parse_speculative_config
from specdec.interfaces import Draft, Scores
from specdec.samplers.acceptance_rates import rates_of_length, rates_of_mean
from specdec.samplers.synthetic import SyntheticConfig, SyntheticSampler
from specdec.samplers.typical import TypicalConfig, TypicalSampler
from specdec_testing.support.checked_draft import checked_draft
from specdec_testing.support.chi_square import excess

P = np.array([0.5, 0.3, 0.12, 0.05, 0.03])


def scores_of(p: np.ndarray, count: int, nodes: int) -> Scores:
    logits = torch.from_numpy(np.log(p)).float().expand(count * (nodes + 1), -1)
    return Scores(logits, logits)


def typical_floor(p: np.ndarray, epsilon: float, delta: float) -> float:
    return min(epsilon, delta * math.exp(sum(x * math.log(x) for x in p if x > 0)))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.09, 0.3), (0.2, 1.0), (0.04, 1.0), (1.0, 0.3)])
def test_typical_accepts_what_is_above_the_floor_and_nothing_else(epsilon, delta) -> None:
    sampler = TypicalSampler(TypicalConfig(posterior_threshold=epsilon, posterior_alpha=delta))
    floor = typical_floor(P, epsilon, delta)
    for token, chance in enumerate(P):
        verdict = sampler.verify(scores_of(P, 50, 1), batch_of([(token,)] * 50))
        assert verdict.num_accepted == [int(chance > floor)] * 50
    assert 0 < sum(floor < P) < 5


def test_typical_draws_from_p_after_the_accepted_path() -> None:
    seen = first_tokens(TypicalSampler(TypicalConfig()), P, None, [-1], 20000, tokens=[4], chunk=10000)
    assert excess(seen, P) < 1


def test_typical_takes_the_longest_path_of_a_tree() -> None:
    sampler = TypicalSampler(TypicalConfig())
    tree = batch_of([(0, 4, 1, 0, 4)], [(-1, -1, -1, 2, 3)])
    verdict = sampler.verify(scores_of(P, 1, 5), tree)
    assert verdict.accepted_nodes == [[2, 3]]
    even = batch_of([(0, 1)], [(-1, -1)])
    assert sampler.verify(scores_of(P, 1, 2), even).accepted_nodes == [[0]]


@pytest.mark.parametrize(
    "rates",
    [(0.9, 0.6, 0.6, 0.1), (1.0, 1.0, 0.0, 0.0), rates_of_length(2.5, 4), rates_of_mean(0.7, 4)],
    ids=str,
)
@pytest.mark.parametrize(("is_tree", "temperature"), [(False, 1.0), (True, 0.0)])
@pytest.mark.sampled(3, slow=3)
def test_tokens_stand_at_the_rates_asked_for_whatever_they_are(rates, is_tree, temperature) -> None:
    params = SamplingParams(temperature=temperature)
    count = 20000
    sampler = SyntheticSampler(SyntheticConfig(synthetic_acceptance_rates=rates))
    # In the tree 0, 1, 3, 5 are the first children; the others must never be accepted.
    rows, parents = ([[4, 0, 3, 1, 2, 4]], [[-1, 0, 0, 1, -1, 3]]) if is_tree else ([[4, 0, 3, 1]], None)
    path = [0, 1, 3, 5] if is_tree else [0, 1, 2, 3]
    draft = checked_draft(Draft.from_lists(rows * count, parents and parents * count), 100)
    batch = batch_of(draft.rows, draft.parents, params=params)
    nodes = len(rows[0])
    verdict = sampler.verify(scores_of(P, count, nodes), batch)
    observed = [np.mean([n > depth for n in verdict.num_accepted]) for depth in range(4)]
    assert np.abs(np.array(observed) - rates).max() < 0.01
    for accepted, tokens in zip(verdict.accepted_nodes, verdict.token_ids, strict=True):
        assert accepted == path[: len(accepted)]
        assert tokens[:-1] == [rows[0][node] for node in accepted]
    last = np.bincount([tokens[-1] for tokens in verdict.token_ids], minlength=5)
    if params.is_greedy:
        assert last.tolist() == [count, 0, 0, 0, 0]
    else:
        assert excess(last, P) < 1


def test_nothing_stands_deeper_than_there_are_rates() -> None:
    sampler = SyntheticSampler(SyntheticConfig(synthetic_acceptance_rates=(1.0, 1.0)))
    verdict = sampler.verify(scores_of(P, 9, 4), batch_of([(0,) * 4] * 9))
    assert verdict.num_accepted == [2] * 9


@pytest.mark.parametrize("rates", [(0.5, 0.6), (1.2,), (-0.1,)])
def test_wrong_rates_are_refused(rates) -> None:
    with pytest.raises(ValueError, match="rate"):
        SyntheticConfig(synthetic_acceptance_rates=rates)


BASE = {"method": "speccheck.proposers.Scripted", "num_speculative_tokens": 3}


def test_samplers_are_configured_by_the_keys_people_know() -> None:
    for keys in ({"synthetic_acceptance_length": 2.0}, {"synthetic_acceptance_rate": 0.5}):
        resolved = parse_speculative_config(BASE | {"rejection_sample_method": "synthetic"} | keys)
        assert resolved is not None
        assert isinstance(resolved.sampler_config, SyntheticConfig)
        assert len(resolved.sampler_config.rates) == 3
    resolved = parse_speculative_config(
        BASE | {"rejection_sample_method": "typical", "posterior_threshold": 0.2, "posterior_alpha": 0.5}
    )
    assert resolved is not None
    assert resolved.sampler_config == TypicalConfig(posterior_threshold=0.2, posterior_alpha=0.5)
    with pytest.raises(ConfigError, match="posterior_threshold"):
        parse_speculative_config(BASE | {"rejection_sample_method": "typical", "posterior_threshold": 0.0})
