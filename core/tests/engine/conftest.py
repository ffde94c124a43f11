"""One tiny model for the tests of the engine, and what it says."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from speccheck.identity import references
from speccheck.models import prompts, tiny
from transformers import PreTrainedModel


@dataclass(frozen=True)
class Subject:
    """A model, prompts and the greedy continuations by `transformers`."""

    model: PreTrainedModel
    prompts: list[list[int]]
    expected: list[list[int]]

    @property
    def texts(self) -> list[list[int]]:
        """Prompts with their continuations: what a proposer that is right knows."""
        return [[*p, *e] for p, e in zip(self.prompts, self.expected, strict=True)]


LENGTHS = [9, 37, 2, 61, 23, 40]
MAX_TOKENS = 32


@pytest.fixture(scope="session")
def subject() -> Subject:
    """A Llama of two layers."""
    model = tiny("llama")
    many = prompts(LENGTHS, seed=11)
    return Subject(model, many, references(model, many, MAX_TOKENS))
