"""Which test of the kit must fail for which mutant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Mutants = dict[str, tuple[type[Any], str]]
"""For each mutant its class and the test that must fail."""


def register_in(mutants: Mutants) -> Callable[[str], Callable[[type[Any]], type[Any]]]:
    """Return a decorator that registers a mutant with the test that must fail."""

    def breaks(test: str) -> Callable[[type[Any]], type[Any]]:
        def register(mutant: type[Any]) -> type[Any]:
            mutants[mutant.__name__] = mutant, test
            return mutant

        return register

    return breaks
