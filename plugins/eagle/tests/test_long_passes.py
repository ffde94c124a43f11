"""Passes of more rows than one compiled call takes are cut, and what comes out is that of the head's own forward."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from eagle_check.shape import Shape
from eagle_check.targets import make_head, make_proposer
from head_check.target import VOCAB

from specdec_kernels.cpu.form import CompiledForm
from specdec_runtime.interfaces import PackedBatch, Segment


@pytest.mark.parametrize("is_eagle3", [False, True])
@pytest.mark.parametrize("counts", [(300,), (33, 5, 70), (20,) * 15])
def test_long_passes_are_compiled(tmp_path: Path, is_eagle3: bool, counts: tuple[int, ...]) -> None:
    shape = Shape(is_eagle3=is_eagle3, has_own_lm_head=is_eagle3)
    runner = make_proposer(make_head(tmp_path, shape)[0], shape)._runner
    num_rows = sum(counts)
    first_slots = [320 * index % 960 if len(counts) < 4 else 40 * index for index in range(len(counts))]
    starts = [sum(counts[:index]) for index in range(len(counts))]
    positions = torch.cat([torch.arange(count) for count in counts])
    slots = torch.cat(
        [torch.arange(slot, slot + count) for slot, count in zip(first_slots, counts, strict=True)]
    )
    segments = [Segment(*row) for row in zip(starts, counts, first_slots, [0] * len(counts), strict=True)]
    rows = torch.tensor([num_rows - 1, 0, num_rows // 2])
    ids = torch.arange(num_rows) * 7 % VOCAB
    batch = PackedBatch(ids, positions, segments, slots, rows)
    features = runner.probe_features(num_rows)
    assert isinstance(runner.forms[0][0], CompiledForm)
    found = runner.forward(batch, features)
    with torch.inference_mode():
        expected = runner.forms[0][-1].forward(batch, features)
    torch.testing.assert_close(found.logits, expected.logits, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.hidden_states, expected.hidden_states, rtol=1e-5, atol=1e-5)
