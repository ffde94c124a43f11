"""Which parameters of a test run at which level: few by default, more in slow tests, all of them in full ones."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

import pytest

MARKER = "sampled"
Values = frozenset[tuple[str, object]]
"""Values of the parameters of one test, by name."""


@pytest.hookimpl(tryfirst=True)  # before tests are left out by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests `slow` or `full` whose function is marked `sampled(N, slow=M)`.

    N of its sets of parameters stay at the default level and M are slow; the others are full, and so are those that are marked
    so by hand. Sets marked slow by hand are among the M, or full.
    """
    functions = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if item.get_closest_marker(MARKER) is not None and item.get_closest_marker("full") is None:
            functions[item.nodeid.partition("[")[0]].append(item)
    for name, tests in functions.items():
        mark = tests[0].get_closest_marker(MARKER)
        assert mark is not None
        fast = [test for test in tests if test.get_closest_marker("slow") is None]
        chosen = set(spread([values_of(test) for test in fast], mark.args[0], name))
        default = {fast[place].nodeid for place in chosen}
        others = [test for test in tests if test.nodeid not in default]
        slow = set(spread([values_of(test) for test in others], mark.kwargs["slow"], name))
        for place, test in enumerate(others):
            test.add_marker(pytest.mark.slow if place in slow else pytest.mark.full)


def spread(sets: Sequence[Values], count: int, seed: str) -> list[int]:
    """Return the places of `count` sets that have as many different values among them as can be, then pairs of values.

    Args:
        sets: values of parameters.
        count: how many to choose; all, if there are fewer.
        seed: in which order equally good ones are taken.
    """
    order = random.Random(seed).sample(range(len(sets)), len(sets))
    seen = set[object]()
    chosen: list[int] = []
    while order and len(chosen) < count:
        best = max(order, key=lambda place: _gain(sets[place], seen))
        order.remove(best)
        chosen.append(best)
        seen |= sets[best] | _pairs(sets[best])
    return chosen


def values_of(item: pytest.Item) -> Values:
    """Return the values of a test's parameters; of objects without a plain name their places in the list of parameters."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return frozenset()
    return frozenset(
        (name, value if isinstance(value, str | int | float | None) else f"place {callspec.indices[name]}")
        for name, value in callspec.params.items()
    )


def _gain(values: Values, seen: set[object]) -> tuple[int, int]:
    return len(values - seen), len(_pairs(values) - seen)


def _pairs(values: Values) -> set[object]:
    return {frozenset((one, other)) for one in values for other in values if one != other}
