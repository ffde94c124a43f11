"""Loop overhead computed from a row of `specdec bench`."""

from __future__ import annotations

import pytest
from loop_overhead import Overhead, table


def test_proposing_and_the_forward_pass_are_taken_out() -> None:
    row = {
        "name": "ngram",
        "propose_ms": 100.0,
        "score_ms": 5.5,
        "verify_ms": 0.2,
        "other_ms": 0.3,
        "forward_ms": 5.0,
    }
    found = Overhead.of(row)
    assert found.overhead_ms == pytest.approx(1.0)
    assert "| ngram | 6.000 | 5.000 | 1.000 | 20% | NO |" in table([found], 0.5)
    assert table([found], 1.1).endswith("yes |")
