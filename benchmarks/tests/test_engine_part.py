"""Engine steps: the requested acceptance rate, and the time budget."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from device.engine_part import STRICT, SYNTHETIC, _config, run_engine
from device.models import Models
from device.plan import PLANS
from device.tables import engine_table

TINY = PLANS["tiny"]
ONE = replace(TINY.engine, batch_sizes=(1,), k=(3,))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(TINY, tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize("verification", [STRICT, SYNTHETIC])
@pytest.mark.parametrize(("share_right", "length"), [(1.0, 4.0), (0.0, 1.0)])
@pytest.mark.sampled(1, slow=1)
def test_drafts_stand_as_often_as_asked_for(
    models: Models, verification: str, share_right: float, length: float, tmp_path: Path
) -> None:
    (point,) = run_engine(models, replace(ONE, share_right=share_right), verification, None, tmp_path).points
    assert point.mean_acceptance_length == length
    assert point.num_rows == 4


def test_when_the_time_is_over_the_rest_is_named(models: Models, tmp_path: Path) -> None:
    result = run_engine(models, replace(TINY.engine, budget_s=0.0), STRICT, None, tmp_path)
    assert result.points == []
    assert result.skipped == [(1, 0), (1, 2), (2, 0), (2, 2)]
    assert engine_table(result).count("SKIPPED") == 4


def test_k_is_drafted_in_every_step(tmp_path: Path) -> None:
    config = _config(8, 0.1, STRICT, tmp_path / "recording.json")
    assert config is not None
    assert config["adaptive"] is False, "`adaptive` drafts less than the k that is told"
