"""Tensor parallelism: what a scorer whose target is split over processes does for core."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from specdec.interfaces.part import Part

if TYPE_CHECKING:
    from specdec.assembly.build import BuiltEngine
    from specdec.config import ResolvedSpeculation
    from specdec.engine_options import EngineOptions


class TensorParallel(Part):
    """Part `tensor_parallel`: a target over several processes, of which the caller's runs the engine."""

    @abstractmethod
    def build(self, options: EngineOptions, speculation: ResolvedSpeculation | None) -> BuiltEngine:
        """Start the other processes, which end with the engine, and return that; see `assemble`.

        Raises:
            EngineError: if one of them does not join or fails.
        """
