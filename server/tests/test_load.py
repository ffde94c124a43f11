"""Hostile and honest clients at once; for ten minutes and on SmolLM2 with `make test-load`."""

from __future__ import annotations

import pytest
from servercheck.load.hostile import bodies
from servercheck.load.run import Plan, missed, run, shown

pytestmark = pytest.mark.slow


def test_hostile_clients_cost_honest_ones_nothing_but_time() -> None:
    report = run(Plan(seconds=8.0))
    assert missed(report) == [], shown(report)
    seen = {name.rpartition(": ")[0] for name in report.hostile}
    assert len(seen) > len(bodies()) / 3
