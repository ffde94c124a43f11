"""Top-p without a sort keeps exactly what a sort of the row keeps."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.noise.torch_rows import TorchRows
from specdec_kernels.cpu.rows.nucleus import keep_nuclei
from specdec_kernels.cpu.rows.operations import CpuRows

TOP_P = [1e-3, 0.05, 0.3, 0.5, 0.77, 0.9, 0.99, 0.9999, 1.0]
CPU = torch.device("cpu")


def rows_of(kind: str, num_rows: int, size: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if kind == "levels":  # many ties
        return torch.randint(-3, 4, (num_rows, size), generator=generator).float()
    return torch.randn(num_rows, size, generator=generator) * (6.0 if kind == "peaked" else 1.0)


@given(
    st.sampled_from(["levels", "normal", "peaked"]),
    st.integers(1, 900),
    st.lists(st.sampled_from(TOP_P), min_size=1, max_size=4),
    st.integers(0, 9999),
)
@settings(max_examples=300, deadline=None)
def test_it_is_that_of_a_sort(kind, size, top_p, seed) -> None:
    logits, counts = rows_of(kind, len(top_p), size, seed), np.full(len(top_p), size)
    bounds = torch.tensor(top_p)[:, None]
    expected = torch.cat(
        [TorchRows(CPU).keep_top_p(row[None], p, counts[:1]) for row, p in zip(logits, top_p, strict=True)]
    )
    for found in (CpuRows(), TorchRows(CPU)):
        assert torch.equal(found.keep_top_p(logits, bounds, counts), expected)
    assert torch.equal(CpuRows().keep_top_p(logits, top_p[0], counts)[:1], expected[:1])


def test_what_rounding_decides_and_what_are_no_numbers_is_left() -> None:
    rows = torch.zeros(6, 10)
    rows[2, 1], rows[3, 1], rows[4] = torch.nan, torch.inf, -torch.inf
    weights = (rows - rows.amax(-1, keepdim=True)).exp()
    top_p = np.array([0.3, 0.25, 0.5, 0.5, 0.5, 1.0])  # 0.3 of ten equal ids is three of them, or four
    is_done, out = np.zeros(6, bool), np.full((6, 10), np.nan, np.float32)
    keep_nuclei(rows.numpy(), weights.numpy(), top_p, out, is_done)
    assert is_done.tolist() == [False, True, False, False, False, True]
    assert np.isfinite(out[1]).nonzero()[0].tolist() == [0, 1, 2]
    assert (out[5] == 0.0).all()
