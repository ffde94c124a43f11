"""Repeated windows: in their steps only, the same for the same step, and predictable by copying alone."""

from __future__ import annotations

import torch
from zoo_recipe.repeats import Repeats


def test_one_window_of_some_steps_repeats_itself() -> None:
    batch = torch.arange(4 * 1025).reshape(4, 1025) % 4096
    repeats = Repeats(3, 60)
    for step in (0, 2, 60):
        assert repeats.put_into(batch, step, vocab_size=4096, seed=1) is batch
    lengths = set()
    for step in range(3, 60):
        got = repeats.put_into(batch, step, vocab_size=4096, seed=1)
        assert got.shape == batch.shape
        assert got.dtype == batch.dtype
        assert torch.equal(got[:3], batch[:3])
        window = got[3]
        period = next(n for n in range(1, 301) if torch.equal(window[n:], window[:-n]))
        assert len(set(window[:period].tolist())) > 0.8 * period, "the segment itself is random"
        lengths.add(period)
        assert torch.equal(got, repeats.put_into(batch, step, vocab_size=4096, seed=1))
        assert not torch.equal(got, repeats.put_into(batch, step, vocab_size=4096, seed=2))
    assert len(lengths) > 20
    assert min(lengths) >= 16
