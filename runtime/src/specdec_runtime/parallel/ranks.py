"""Part `tensor_parallel` of specdec; what it needs is imported when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.assembly import TensorParallel

if TYPE_CHECKING:
    from specdec import EngineOptions
    from specdec.assembly import BuiltEngine
    from specdec.config import ResolvedSpeculation


class Ranks(TensorParallel):
    """Processes on this machine, which rank 0 starts."""

    name = "tensor_parallel"

    def build(self, options: EngineOptions, speculation: ResolvedSpeculation | None) -> BuiltEngine:
        """Start the other ranks, and return the engine."""
        from specdec_runtime.parallel.build import build_split

        return build_split(options, speculation)
