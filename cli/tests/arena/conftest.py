"""A submission by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from arenacheck.by_hand import facts, rows_by_hand, stamp_by_hand

from specdec_cli.arena.submission import write_submission


@pytest.fixture
def by_hand(tmp_path: Path) -> Path:
    """A submission whose numbers are known."""
    folder = tmp_path / "by_hand"
    write_submission(folder, facts(), rows_by_hand(), stamp_by_hand())
    return folder
