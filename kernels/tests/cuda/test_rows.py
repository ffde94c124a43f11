"""Operations on rows of logits by the kernels give what core's give with torch."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
import torch
from speccheck.recorder import use_backends

from specdec import SamplingParams
from specdec.interfaces import Backend, Declined, RowOperations
from specdec.logits import apply_temperature_and_truncation
from specdec.noise import row_operations
from specdec_kernels.cuda.rows import DeviceRows

pytestmark = [pytest.mark.interpreter, pytest.mark.filterwarnings("ignore:.* encountered in :RuntimeWarning")]
CPU = torch.device("cpu")
PARAMS = [
    SamplingParams(temperature=0.8, top_p=0.7),
    SamplingParams(temperature=0.0, top_k=3),
    SamplingParams(temperature=1.3, top_k=5, min_p=0.02),
    SamplingParams(temperature=1e-300, top_p=0.9),
    SamplingParams(temperature=2.0),
]


class Lent(Backend):
    """Lends the kernels, in the interpreter, to tensors on the CPU."""

    name: ClassVar[str] = "lent"

    def __init__(self, made: RowOperations) -> None:
        self._made = made

    def row_operations(self, device: torch.device) -> RowOperations | Declined:
        return self._made


def test_they_agree_with_torch_and_are_chosen(monkeypatch) -> None:
    made = DeviceRows(CPU)
    use_backends(monkeypatch, Lent(made))
    assert row_operations(CPU) is made


@pytest.mark.parametrize("rows", [[1] * 5, [3, 1, 2, 1, 4]])
def test_temperature_and_truncation_are_cores(rows, monkeypatch) -> None:
    logits = 3 * torch.randn(sum(rows), 211, generator=torch.Generator().manual_seed(len(rows)))
    use_backends(monkeypatch)
    expected = apply_temperature_and_truncation(logits, PARAMS, rows)
    before = logits.clone()
    use_backends(monkeypatch, Lent(DeviceRows(CPU)))
    for _ in range(2):  # the second time with settings that are on the device
        got = apply_temperature_and_truncation(logits, PARAMS, rows)
        assert torch.equal(got > -torch.inf, expected > -torch.inf)
        assert torch.allclose(got, expected, atol=1e-5)
        assert torch.equal(logits, before)


def test_other_settings_are_not_taken_for_those_on_the_device() -> None:
    operations, logits = DeviceRows(CPU), torch.arange(6.0)[None]
    for top_k in (1, 2, 6, 2):
        got = operations.truncated(logits, np.array([[1.0], [0.0], [top_k], [1.0]]))
        assert int((got > -torch.inf).sum()) == top_k


def test_a_row_with_a_nan_is_found_after_truncation() -> None:
    operations, logits = DeviceRows(CPU), torch.randn(3, 50)
    logits[1, 7] = torch.nan
    settings = np.array([[1.0, 0.5, 0.0], [0.0] * 3, [5.0] * 3, [0.9] * 3])
    assert operations.valid_rows(operations.truncated(logits, settings)).tolist() == [True, False, True]
