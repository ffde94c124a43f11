"""Base of all suites: settings that an author sets, and tests that must not be replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from specdec_testing.support.verdicts import broken

Suite = TypeVar("Suite")
Made = TypeVar("Made")
_HOME = __package__.rpartition(".")[0]


class Conformance:
    """Base of the suites. A subclass outside the kit sets settings and may add tests, but must not replace the kit's."""

    settings: ClassVar[frozenset[str]] = frozenset()
    """Attributes that a subclass may set."""

    def __init_subclass__(cls, **keys: Any) -> None:
        super().__init_subclass__(**keys)
        replaced = _replaced(cls)
        if replaced:
            raise TypeError(_complaint(cls, replaced))

    def test_nothing_of_the_kit_is_replaced(self) -> None:
        """The tests that ran are the kit's own.

        To fix: set settings only (`method`, `config`, `model`, ...), and give your own tests other names.
        """
        replaced = _replaced(type(self))
        if replaced:
            broken(_complaint(type(self), replaced))


def once_per_suite(make: Callable[[Suite], Made]) -> Callable[[Suite], Made]:
    """Cache a value per suite class; pytest creates an object for every test."""
    made: dict[type[Suite], Made] = {}

    def get(self: Suite) -> Made:
        if type(self) not in made:
            made[type(self)] = make(self)
        return made[type(self)]

    return get


def _replaced(suite: type[Conformance]) -> list[str]:
    """Return names that classes outside the kit redefine, except settings."""
    ours, theirs, settings = set[str](), set[str](), set[str]()
    for cls in suite.__mro__:
        if cls.__module__ == _HOME or cls.__module__.startswith(f"{_HOME}."):
            ours |= vars(cls).keys()
            settings |= vars(cls).get("settings", frozenset())
        elif cls is not object:
            theirs |= vars(cls).keys()
    return sorted(name for name in (ours & theirs) - settings if not _is_everybodys(name))


def _is_everybodys(name: str) -> bool:
    """Return whether a name is defined by every class, such as `__module__` or `__doc__`."""
    return name.startswith("__") and name.endswith("__") and name != "__init_subclass__"


def _complaint(suite: type[Conformance], replaced: list[str]) -> str:
    return f"{suite.__name__} replaces {', '.join(replaced)} of the kit: what it would show then is not conformance"
