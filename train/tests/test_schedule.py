"""The learning rate over a run."""

from __future__ import annotations

import pytest

from specdec_train.schedule import Schedule, progress_of


@pytest.mark.parametrize(
    ("progress", "multiplier"),
    [
        (0.0, 0.0),
        (0.05, 0.5),
        (0.1, 1.0),
        (0.5, 1.0),
        (0.6, 1.0),
        (0.8, 0.5),
        (1.0, 0.0),
        (1.5, 0.0),
        (-1.0, 0.0),
    ],
)
def test_multiplier(progress: float, multiplier: float) -> None:
    assert Schedule(warmup=0.1, decay=0.4).multiplier(progress) == pytest.approx(multiplier)


def test_without_warmup_or_decay() -> None:
    assert Schedule(warmup=0.0, decay=0.0).multiplier(0.0) == 1.0
    assert Schedule(warmup=0.0, decay=0.0).multiplier(1.0) == 1.0


def test_parts_must_fit() -> None:
    with pytest.raises(ValueError, match=r"warmup=0.7 and decay=0.4"):
        Schedule(warmup=0.7, decay=0.4)


def test_progress_is_whichever_is_further() -> None:
    assert progress_of(10, 100, 30.0, 60.0) == 0.5
    assert progress_of(90, 100, 30.0, 60.0) == 0.9
    assert progress_of(10, 100, 1e9, None) == 0.1
