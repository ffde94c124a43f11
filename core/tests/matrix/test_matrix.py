"""Sampler by draft kind by sampling parameter: every cell holds, and every cell's mutant is caught.

Slow tests and those by default look at every parameter and every pair of sampler and draft kind; `make test-full` at every
cell, and writes `tests/results/matrix.json`, from which the table in docs/sampling.md is made.
"""

from __future__ import annotations

import pytest
from speccheck.matrix import CELLS, DRAFTS, PARAMETERS, SAMPLERS, check
from speccheck.mutants import MUTANTS

PAIRS = [(sampler, draft) for sampler in SAMPLERS for draft in DRAFTS]


def cells(*, step: int, slow: int) -> list[object]:
    """All cells: one in `step`, and one in `slow` marked `slow`, all others `full`.

    The samples walk through the pairs as they walk through parameters.
    """
    marked: list[object] = []
    names = list(PARAMETERS)
    for sampler, draft, name in CELLS:
        place = (PAIRS.index((sampler, draft)) - 7 * names.index(name)) % step
        marks = () if place == 0 else pytest.mark.full if place % slow else pytest.mark.slow
        marked.append(pytest.param(sampler, draft, name, id=f"{sampler}-{draft}-{name}", marks=marks))
    return marked


@pytest.mark.parametrize(("sampler", "draft", "name"), cells(step=72, slow=18))
def test_the_cell_holds(sampler: str, draft: str, name: str) -> None:
    result = check(sampler, draft, name)
    assert result.is_good, result
    assert (result.num_accepted > 0) == (draft != "none")


@pytest.mark.parametrize(("sampler", "draft", "name"), cells(step=72, slow=36))
def test_the_cell_catches_its_mutant(
    sampler: str, draft: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    MUTANTS[PARAMETERS[name].mutants[draft != "none"]](monkeypatch)
    result = check(sampler, draft, name)
    assert not result.is_good, result
