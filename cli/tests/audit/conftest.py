"""A server to audit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servercheck.served import Served, serving

from specdec_server import Settings


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    speculation = {
        "method": "ngram",
        "num_speculative_tokens": 4,
        "prompt_lookup_min": 1,
        "prompt_lookup_max": 3,
    }
    with serving(
        Settings(model_names=("zoo", "small"), log_every_s=0.0), speculative_config=speculation
    ) as found:
        yield found
