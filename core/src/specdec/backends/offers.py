"""What backends offer in place of torch: core asks them in order, and tries an offer before it is used."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from specdec import registry
from specdec.errors import described, line_of
from specdec.interfaces.backend import Backend, Declined

logger = logging.getLogger("specdec")

Offer = TypeVar("Offer")
_GROUPED: ContextVar[dict[str, list[str]] | None] = ContextVar("grouped", default=None)
"""See `grouped_warnings`: by offer, why it was rejected, each time."""


class Rejected(Declined):
    """The answer for a backend whose offer raises, or does not do what torch does."""


def first_offer(
    what: str,
    ask: Callable[[Backend], Offer | Declined],
    problem_of: Callable[[Offer], str | None],
    name: str | None = None,
) -> Offer | Declined:
    """Return the first offer that nothing is wrong with, or why no backend has one.

    Args:
        what: what is asked for, for the warnings about rejected offers.
        ask: returns a backend's answer.
        problem_of: tries an offer; returns what is wrong with it, as a clause, or None.
        name: of the only backend that is asked; None for all.
    """
    reasons: list[str] = []
    for backend in registry.backends():
        if name not in (None, backend.name):
            continue
        answer = tried(backend, ask, problem_of)
        if not isinstance(answer, Declined):
            return answer
        reasons.append(f"{backend.name}: {answer.reason}")
        if isinstance(answer, Rejected):
            with grouped_warnings() as grouped:
                grouped.setdefault(f"{what} of backend {backend.name} is not used", []).append(answer.reason)
    return Declined("; ".join(reasons) or registry.why_no_backend())


@contextmanager
def grouped_warnings() -> Iterator[dict[str, list[str]]]:
    """Warn of each rejected offer once, with the number of times, at the end of the outermost of these blocks."""
    grouped = _GROUPED.get()
    if grouped is not None:
        yield grouped
        return
    grouped = {}
    token = _GROUPED.set(grouped)
    try:
        yield grouped
    finally:
        _GROUPED.reset(token)
        for offer, reasons in grouped.items():
            times = f" for {len(reasons)} modules" if len(reasons) > 1 else ""
            logger.warning("%s%s: %s", offer, times, reasons[0])


def tried(
    backend: Backend, ask: Callable[[Backend], Offer | Declined], problem_of: Callable[[Offer], str | None]
) -> Offer | Declined:
    """Return a backend's answer; `Rejected` if it is an offer that cannot be used. See `first_offer`."""
    try:
        answer = ask(backend)
        if isinstance(answer, Declined):
            return answer
        problem = problem_of(answer)
    except Exception as error:  # its own code, a compiler, a driver or a launch may raise anything
        problem = f"it raised {described(error)}{line_of(error)}"
    return answer if problem is None else Rejected(problem)
