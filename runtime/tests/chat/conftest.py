"""One tiny model, whose answers do not matter."""

from __future__ import annotations

import pytest
from speccheck.models import tiny
from transformers import PreTrainedModel


@pytest.fixture(scope="session")
def model() -> PreTrainedModel:
    """A Llama of two layers."""
    return tiny("llama")
