"""Steps that are launched ahead: what a package that has such an engine does for core."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from specdec.interfaces.part import Part

if TYPE_CHECKING:
    from specdec.engine.engine import Engine


class AsyncScheduling(Part):
    """Part `async_scheduling`: an engine that launches a step before it has done with the step before."""

    @abstractmethod
    def engine(self) -> type[Engine]:
        """Return its class, which takes the arguments of `Engine`."""
