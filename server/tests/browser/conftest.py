from collections.abc import Iterator
from typing import Any

import pytest
from servercheck.browser import chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found
