"""The public surface."""

from __future__ import annotations

import specdec_train


def test_surface_is_sorted_and_there() -> None:
    assert specdec_train.__all__ == sorted(specdec_train.__all__)
    assert all(hasattr(specdec_train, name) for name in specdec_train.__all__)
