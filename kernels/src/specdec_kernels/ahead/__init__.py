"""Steps that are launched before the step before them is done: part `async_scheduling`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec import hookimpl
from specdec.assembly import AsyncScheduling
from specdec.interfaces import Part

if TYPE_CHECKING:
    from specdec_kernels.ahead.engine import AheadEngine

__all__ = ["LaunchesAhead"]


class LaunchesAhead(AsyncScheduling):
    """The part."""

    name = "async_scheduling"

    def engine(self) -> type[AheadEngine]:
        """See `AsyncScheduling.engine`."""
        # Imports the base class of models, which parts are listed without.
        from specdec_kernels.ahead.engine import AheadEngine

        return AheadEngine


@hookimpl
def specdec_register_parts() -> list[type[Part]]:
    """Return the part."""
    return [LaunchesAhead]
