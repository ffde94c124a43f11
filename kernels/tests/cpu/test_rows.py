"""Operations on rows of logits against torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numba import njit

from specdec_kernels.cpu.compiled.math import exp
from specdec_kernels.cpu.rows.logits import are_valid, best_ids, scale
from specdec_kernels.cpu.rows.operations import CpuRows

NAN, INF = math.nan, math.inf


@njit
def exps(x: np.ndarray, out: np.ndarray) -> None:
    for i in range(x.shape[0]):
        out[i] = exp(x[i])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("temperature", [1e-30, 0.3, 1.0, 7.0])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (2, 4096)])
def test_heat_equals_torch(shape, temperature, dtype) -> None:
    logits = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    logits[0, -1] = -INF if shape[1] > 1 else 0.0
    out = np.full(shape, NAN, dtype)
    temperatures = temperature * np.arange(1, shape[0] + 1)  # each row has its own
    scale(logits, temperatures, out)
    tensor = torch.from_numpy(logits)
    wanted = (tensor - tensor.amax(-1, keepdim=True)) / torch.from_numpy(temperatures)[:, None]
    np.testing.assert_allclose(out, wanted.numpy(), rtol=2e-7)
    assert (out.max(1) == 0).all()


def test_heat_of_a_row_with_a_nan_is_nan() -> None:
    logits = np.array([[1.0, NAN, 2.0], [1.0, 0.0, 2.0], [NAN, 1.0, 1.0]], np.float32)
    out = np.zeros_like(logits)
    scale(logits, np.ones(3), out)
    assert np.isnan(out).all(1).tolist() == [True, False, True]


@pytest.mark.parametrize("temperature", [0.0, 1e-45, 0.3, 1e300])
@pytest.mark.parametrize("size", [1, 65, 4096])
def test_temperatures_and_min_p_at_once_are_bit_for_bit_those_of_single_operations(size, temperature) -> None:
    logits = torch.from_numpy(np.random.default_rng(size).standard_normal((5, size)).astype(np.float32)) * 9
    logits[1, -1], logits[2], logits[3, 0], operations = NAN, -INF, INF, CpuRows()
    settings = np.array([[temperature, 0.8, 0.8, 0.0, temperature], [0.0] * 5, [size] * 5, [1.0] * 5])
    limits, temperatures = torch.finfo(torch.float32), torch.from_numpy(settings[0, :, None])
    wanted = operations.scaled_rows(logits, temperatures.clamp(limits.tiny, limits.max))
    wanted = torch.where(temperatures > 0, wanted, logits)
    got = operations.truncated(logits, settings)
    assert got is not None
    assert np.array_equal(got.numpy(), wanted.numpy(), equal_nan=True)
    for min_p in (0.03, 0.3, 1.0):
        settings[1] = min_p
        floored = wanted.masked_fill(wanted < torch.as_tensor(min_p).log(), -INF)
        got = operations.truncated(logits, settings)
        assert got is not None
        assert np.array_equal(
            got.numpy(), torch.where(temperatures > 0, floored, logits).numpy(), equal_nan=True
        )
    for place, cut in ((2, size - 1), (3, 0.9)):
        changed = settings.copy()
        changed[place, 3] = cut
        assert operations.truncated(logits, changed) is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sound_rows_have_numbers_and_something_to_choose(dtype) -> None:
    rows = np.array([[0, 1, -INF], [-INF] * 3, [0, NAN, 1], [NAN] * 3, [-INF, INF, 0]], dtype)
    out = np.zeros(5, bool)
    assert not are_valid(rows, out)
    assert out.tolist() == [True, False, False, False, True]
    assert out.tolist() == (torch.from_numpy(rows).amax(-1) > -INF).tolist()
    assert are_valid(rows[[0, 4]], out)


def test_exp_is_exact_for_float64_and_close_for_float32() -> None:
    x = -np.geomspace(1e-6, 1000, 300)
    wide, short = np.empty(300), np.empty(300, np.float32)
    exps(x, wide)
    exps(x.astype(np.float32), short)
    assert wide.tolist() == [math.exp(v) for v in x]
    wanted = np.exp(x.astype(np.float32).astype(np.float64))
    np.testing.assert_allclose(short, np.where(x > -87, wanted, 0), rtol=3e-7)
    edge = np.array([-INF, 0.0], np.float32)
    exps(edge, edge)
    assert edge.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("size", [1, 3, 17, 4096])
def test_best_ids_are_the_lowest_of_the_highest(size) -> None:
    rng = np.random.default_rng(size)
    rows = rng.integers(0, max(2, size // 4), (5, size)).astype(np.float32)
    rows[1] = -INF
    if size > 2:
        rows[2, 0] = NAN
    out = np.full(5, -9)
    best_ids(rows, out)
    assert out.tolist() == np.nan_to_num(rows, nan=-INF).argmax(1).tolist()
