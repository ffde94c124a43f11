"""p-logits against an independent, naive implementation of temperature, min-p, top-k and top-p."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from specdec import ConfigError
from specdec.interfaces.row_block import RowBlock
from specdec.logits.pipeline import apply_temperature_and_truncation, p_logits
from specdec.sampling_params import SamplingParams

logit_rows = st.lists(
    # Equal logits are equal exactly, others differ by far more than rounding, so that the order is the same for everybody.
    st.one_of(st.integers(-8, 8).map(float), st.integers(-10_000, 10_000).map(lambda n: n / 1000)),
    min_size=1,
    max_size=12,
)
cuts = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.3, 0.8, 1.0, 2.0]),
        "top_k": st.sampled_from([-1, 0, 1, 2, 3, 100]),
        "top_p": st.sampled_from([0.05, 0.31, 0.77, 0.97, 1.0]),
        "min_p": st.sampled_from([0.0, 0.03, 0.4, 1.0]),
    }
)


def naive(row: list[float], temperature: float, top_k: int, top_p: float, min_p: float) -> dict[int, float]:
    """Return the distribution as `{id: probability}`, with plain loops; raises where a bound is within rounding of a cut."""
    scaled = [value / temperature for value in row]
    top = max(scaled)
    weights = {i: math.exp(value - top) for i, value in enumerate(scaled)}
    near = 1e-5
    if min_p > 0:
        if any(abs(w - min_p) < near and scaled[i] != top for i, w in weights.items()):
            raise ArithmeticError
        weights = {i: w for i, w in weights.items() if w >= min_p or scaled[i] == top}
    order = sorted(weights, key=lambda i: (-scaled[i], i))
    if 0 < top_k < len(row):
        order = order[:top_k]
    mass = sum(weights[i] for i in order)
    if top_p < 1.0:
        kept, total = [], 0.0
        for i in order:
            if kept and abs(total - top_p) < near:
                raise ArithmeticError
            if kept and total >= top_p:
                break
            kept.append(i)
            total += weights[i] / mass
        order = kept
    mass = sum(weights[i] for i in order)
    return {i: weights[i] / mass for i in order}


def law(logits: torch.Tensor) -> dict[int, float]:
    probs = torch.softmax(logits.double(), -1)
    return {i: float(p) for i, p in enumerate(probs) if logits[i] != -torch.inf}


def float32(row: list[float]) -> list[float]:
    return torch.tensor(row, dtype=torch.float32).tolist()


@given(logit_rows, cuts)
@settings(max_examples=500, deadline=None)
def test_one_request_equals_the_naive_law(row, cut) -> None:
    row = float32(row)
    try:
        want = naive(row, **cut)
    except ArithmeticError:
        assume(False)
    got = law(apply_temperature_and_truncation(torch.tensor([row]), [SamplingParams(**cut)], [1])[0])
    assert set(got) == set(want)
    for token, probability in want.items():
        assert got[token] == pytest.approx(probability, abs=1e-5)


@given(
    st.lists(st.tuples(cuts, st.booleans(), st.integers(1, 3)), min_size=2, max_size=4), st.integers(0, 9999)
)
@settings(max_examples=200, deadline=None)
def test_a_mixed_batch_gives_each_row_what_it_gets_alone(requests, seed) -> None:
    params = [SamplingParams(**cut | ({"temperature": 0.0} if greedy else {})) for cut, greedy, _ in requests]
    rows = [count for _, _, count in requests]
    logits = torch.randint(-4, 5, (sum(rows), 9), generator=torch.Generator().manual_seed(seed)).float()
    before = logits.clone()
    together = apply_temperature_and_truncation(logits, params, rows)
    start = 0
    for param, count in zip(params, rows, strict=True):
        alone = apply_temperature_and_truncation(before[start : start + count].clone(), [param], [count])
        assert torch.equal(together[start : start + count], alone)
        start += count
    assert torch.equal(logits, before)  # the raw logits are shown elsewhere and must not change


def test_ties_keep_the_lowest_ids() -> None:
    row = torch.tensor([[1.0, 2.0, 2.0, 2.0, 1.0]])
    kept = apply_temperature_and_truncation(row, [SamplingParams(temperature=1.0, top_k=2)], [1])[0]
    assert [i for i in range(5) if kept[i] > -torch.inf] == [1, 2]
    kept = apply_temperature_and_truncation(row, [SamplingParams(temperature=1.0, top_k=4)], [1])[0]
    assert [i for i in range(5) if kept[i] > -torch.inf] == [0, 1, 2, 3]
    flat = torch.zeros((1, 10))
    kept = apply_temperature_and_truncation(flat, [SamplingParams(temperature=1.0, top_p=0.25)], [1])[0]
    assert [i for i in range(10) if kept[i] > -torch.inf] == [0, 1, 2]
    kept = apply_temperature_and_truncation(flat, [SamplingParams(temperature=1.0, min_p=1.0)], [1])[0]
    assert bool((kept > -torch.inf).all())


def test_the_order_is_min_p_then_top_k_then_top_p() -> None:
    # top-p is of what top-k left: 0.5 / 0.8 >= 0.6, so one id stays; over all ids it would be two.
    row = torch.tensor([[0.5, 0.3, 0.1, 0.1]]).log()
    kept = apply_temperature_and_truncation(row, [SamplingParams(temperature=1.0, top_k=2, top_p=0.6)], [1])[
        0
    ]
    assert [i for i in range(4) if kept[i] > -torch.inf] == [0]
    kept = apply_temperature_and_truncation(row, [SamplingParams(temperature=1.0, top_p=0.6)], [1])[0]
    assert [i for i in range(4) if kept[i] > -torch.inf] == [0, 1]
    # min-p comes after temperature: at temperature 2 the ratio 0.2 becomes its root.
    kept = apply_temperature_and_truncation(row, [SamplingParams(temperature=2.0, min_p=0.4)], [1])[0]
    assert bool((kept > -torch.inf).all())
    kept = apply_temperature_and_truncation(row, [SamplingParams(temperature=1.0, min_p=0.4)], [1])[0]
    assert [i for i in range(4) if kept[i] > -torch.inf] == [0, 1]


def test_greedy_rows_keep_their_order_and_half_precision_is_widened() -> None:
    row = torch.tensor([[1.0, 3.0, 2.0]], dtype=torch.bfloat16)
    out = p_logits(row, [RowBlock(SamplingParams(temperature=0.0))])
    assert out.dtype == torch.float32
    assert out.tolist() == [[1.0, 3.0, 2.0]]


def test_a_very_low_temperature_is_still_a_law() -> None:
    row = torch.tensor([[50.0, 49.0, -50.0]])
    for temperature in (1e-3, 1e-6, 1e-30, 1e-45):
        out = apply_temperature_and_truncation(row, [SamplingParams(temperature=temperature)], [1])
        assert torch.softmax(out, -1)[0, 0] == pytest.approx(1.0)


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-46, 1e-40, 1e38, 1e300])
@pytest.mark.parametrize("cuts", [{}, {"top_k": 3}, {"top_p": 0.9}, {"min_p": 0.1}])
def test_no_temperature_makes_anything_but_numbers(temperature, cuts) -> None:
    logits = torch.tensor([[3.0, 1.0, 3.0, -torch.inf, 2.9, -50.0]])
    got = apply_temperature_and_truncation(logits, [SamplingParams(temperature=temperature, **cuts)], [1])
    assert not got.isnan().any()
    assert got[0, 0] == got[0, 2] == 0.0
    assert got[0, 3] == -torch.inf
    probs = torch.softmax(got, -1)[0]
    if temperature < 1:
        assert probs.tolist() == [0.5, 0.0, 0.5, 0.0, 0.0, 0.0]
    elif not cuts:
        assert torch.allclose(probs[[0, 1, 2, 4, 5]], torch.full((5,), 0.2))


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["temperature", "repetition_penalty"])
def test_parameters_are_finite(name, value) -> None:
    with pytest.raises(ConfigError, match=name):
        SamplingParams(**{name: value})
