"""Fixtures of the tests of grammars."""

from __future__ import annotations

import pytest

from specdec.adaptive.row_costs import RowCosts


@pytest.fixture
def rows_that_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every likely token be drafted, whatever the machine is doing meanwhile."""
    monkeypatch.setattr(RowCosts, "least_chance", lambda costs, num_sequences: 0.0)
