"""New weights of the zoo's target, and what engines made with the old and the new ones say."""

from __future__ import annotations

from pathlib import Path

import pytest
from speccheck.adapters import target
from speccheck.weights import OPTIONS, Weights, changed, tokens, write

from specdec import LLM


@pytest.fixture(scope="module")
def old() -> Weights:
    return dict(target().state_dict())


@pytest.fixture(scope="module")
def new(old: Weights) -> Weights:
    return changed(old)


@pytest.fixture(scope="module")
def folder(new: Weights, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zoo's target with the new weights."""
    return write(new, tmp_path_factory.mktemp("weights") / "new")


@pytest.fixture(scope="module")
def expected(folder: Path) -> tuple[list[list[int]], list[list[int]]]:
    """The tokens of engines that were made with the old weights, and with the new ones."""
    return tokens(LLM("zoo", **OPTIONS)), tokens(LLM(str(folder), **OPTIONS))


@pytest.fixture(scope="module")
def shared() -> LLM:
    return LLM("zoo", **OPTIONS)
