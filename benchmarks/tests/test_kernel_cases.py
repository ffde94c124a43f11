"""Kernel cases: each belongs to an operation, and wrong results are detected."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from device.bandwidth import Bandwidth
from device.cases import CASES
from device.kernel_case import KernelCase, Problem
from device.kernel_part import is_near, ops, run_kernels
from device.sizes import Sizes, small_sizes

CPU = torch.device("cpu")


def test_cases_are_of_operations_that_exist() -> None:
    assert {case.op for case in CASES} <= ops()
    assert len({(case.op, case.name) for case in CASES}) == len(CASES)


@pytest.mark.parametrize("batch_size", [1, 5])
@pytest.mark.parametrize("k", [0, 3])
def test_cases_can_be_made_at_other_sizes(batch_size: int, k: int) -> None:
    sizes = replace(small_sizes(CPU), batch_size=batch_size, k=k)
    for case in CASES:
        if k == 0 and case.op == "kv_compact":
            continue  # nothing to move
        problem = case.make(sizes)
        assert problem.num_bytes > 0
        assert all(isinstance(tensor, torch.Tensor) for tensor in problem.call())


def test_a_wrong_result_a_missing_case_and_too_little_time_are_told() -> None:
    def make(sizes: Sizes) -> Problem:
        ones = torch.ones(2, device=sizes.device)
        return Problem(lambda: (ones,), 8, lambda: (2 * ones,), "torch.mul", tolerance=0.4)

    case = KernelCase("strict_verify", "wrong", make)
    sizes, bandwidth = small_sizes(CPU), Bandwidth(2.0, "vendor", 1.0)
    result = run_kernels(sizes, bandwidth, num_calls=1, seconds=600.0, cases=[case])
    assert not result.rows[0].is_equal
    assert result.rows[0].bound_ms == pytest.approx(8 / 2e9)
    assert "rms_norm" in result.without_case
    late = run_kernels(sizes, None, num_calls=1, seconds=0.0, cases=[case])
    assert late.skipped == ["strict_verify: wrong"]
    assert late.rows == []


def test_nearness() -> None:
    a = torch.tensor([1.0, -8.0, -torch.inf])
    assert is_near(a, a.clone(), 0.0)
    assert is_near(a, torch.tensor([1.007, -8.0, -torch.inf]), 1e-3)
    assert not is_near(a, torch.tensor([1.009, -8.0, -torch.inf]), 1e-3)
    assert not is_near(a, torch.tensor([1.0, -8.0, -9.0]), 1e-3)
    assert not is_near(a, torch.tensor([1.0, -8.0, torch.inf]), 1e-3)
    assert not is_near(a, torch.tensor([1.0, -8.0, torch.nan]), 1e-3)
    assert not is_near(torch.tensor([1, 2]), torch.tensor([1, 3]), 1.0)
