"""The pretend device of a file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pretend import PretendDevice


@pytest.fixture(scope="module")
def device(expected: object) -> Iterator[PretendDevice]:
    """Enter the device once the CPU has answered, whose answers are `expected`."""
    with PretendDevice() as entered:
        yield entered
