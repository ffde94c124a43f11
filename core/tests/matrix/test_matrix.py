"""Sampler by draft kind by sampling parameter: every cell holds, and every cell's mutant is caught.

The default run looks at every parameter and every pair of sampler and draft kind; `make test-full` at every cell, and writes
`tests/results/matrix.json`, from which the table in docs/sampling.md is made.
"""

from __future__ import annotations

import pytest
from speccheck.matrix import CELLS, DRAFTS, PARAMETERS, SAMPLERS, check
from speccheck.mutants import MUTANTS

PAIRS = [(sampler, draft) for sampler in SAMPLERS for draft in DRAFTS]


def cells(*, step: int) -> list[object]:
    """All cells, those outside a sample marked `full`; the sample walks through the pairs as it walks through parameters."""
    marked: list[object] = []
    names = list(PARAMETERS)
    for sampler, draft, name in CELLS:
        is_sampled = (PAIRS.index((sampler, draft)) - 7 * names.index(name)) % step == 0
        marks = () if is_sampled else pytest.mark.full
        marked.append(pytest.param(sampler, draft, name, id=f"{sampler}-{draft}-{name}", marks=marks))
    return marked


@pytest.mark.parametrize(("sampler", "draft", "name"), cells(step=9))
def test_the_cell_holds(sampler: str, draft: str, name: str) -> None:
    result = check(sampler, draft, name)
    assert result.is_good, result
    assert (result.num_accepted > 0) == (draft != "none")


@pytest.mark.parametrize(("sampler", "draft", "name"), cells(step=18))
def test_the_cell_catches_its_mutant(
    sampler: str, draft: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    MUTANTS[PARAMETERS[name].mutants[draft != "none"]](monkeypatch)
    result = check(sampler, draft, name)
    assert not result.is_good, result
