"""Lets the tests import what they share, and makes targets with multi-token-prediction layers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from mtp_check.targets import MadeTarget, make_target


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., MadeTarget]:
    """Return a maker of targets: a kind, and how many layers; the same one for the same arguments."""

    @cache
    def make(kind: str, num_layers: int = 1) -> MadeTarget:
        return make_target(kind, num_layers, tmp_path_factory.mktemp(kind))

    return make
