"""Sampler by draft kind by sampling parameter: every cell holds, and every cell's mutant is caught.

The default run looks at every parameter and every pair of sampler and draft kind; `make test-full` at every cell, and writes
`tests/results/matrix.json`, from which the table in docs/sampling.md is made.
"""

from __future__ import annotations

import pytest
from speccheck.matrix import DRAFTS, PARAMETERS, SAMPLERS, check
from speccheck.mutants import MUTANTS

PAIRS = [(sampler, draft) for sampler in SAMPLERS for draft in DRAFTS]
CELLS = [(sampler, draft, name) for name in PARAMETERS for sampler, draft in PAIRS]


def cells(*, step: int) -> list[object]:
    """All cells, those outside a sample marked `full`; the sample walks through the pairs as it walks through parameters."""
    marked: list[object] = []
    for index, (sampler, draft, name) in enumerate(CELLS):
        place = index % len(PAIRS)
        row = index // len(PAIRS)
        is_sampled = (place - 7 * row) % step == 0
        marked.append(
            pytest.param(
                sampler,
                draft,
                name,
                id=f"{sampler}-{draft}-{name}",
                marks=() if is_sampled else pytest.mark.full,
            )
        )
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
