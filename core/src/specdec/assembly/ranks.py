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
    """Part `tensor_parallel`: one engine over several processes, whose callers all get its outputs."""

    @abstractmethod
    def check(self, size: int) -> None:
        """Check that this process is one of `size` ranks, before anything is loaded.

        Raises:
            ConfigError: if it is not; says how to start them.
        """

    @abstractmethod
    def build(self, options: EngineOptions, speculation: ResolvedSpeculation | None) -> BuiltEngine:
        """Return this rank's engine, or what stands in for it; see `assemble`. Called by all ranks.

        Raises:
            EngineError: if another rank does not join, fails, or makes a different engine.
        """
