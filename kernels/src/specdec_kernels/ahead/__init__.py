"""Steps that are launched before the step before them is done: part `async_scheduling`."""

from __future__ import annotations

from specdec import hookimpl
from specdec.assembly import AsyncScheduling
from specdec.interfaces import Part
from specdec_kernels.ahead.engine import AheadEngine

__all__ = ["AheadEngine", "LaunchesAhead"]


class LaunchesAhead(AsyncScheduling):
    """The part."""

    name = "async_scheduling"
    engine = AheadEngine


@hookimpl
def specdec_register_parts() -> list[type[Part]]:
    """Return the part."""
    return [LaunchesAhead]
