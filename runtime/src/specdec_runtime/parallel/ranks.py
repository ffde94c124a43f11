"""Part `tensor_parallel` of specdec; what it needs is imported when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.assembly import TensorParallel
from specdec_runtime.parallel.rank import process_rank

if TYPE_CHECKING:
    from specdec import EngineOptions
    from specdec.assembly import BuiltEngine
    from specdec.config import ResolvedSpeculation


class Ranks(TensorParallel):
    """The processes that `torchrun` has started."""

    name = "tensor_parallel"

    def check(self, size: int) -> None:
        """Check that this process is one of `size` ranks, before anything is loaded."""
        process_rank(size)

    def build(self, options: EngineOptions, speculation: ResolvedSpeculation | None) -> BuiltEngine:
        """Return rank 0's engine, or the engine of another rank, which executes its commands."""
        from specdec_runtime.parallel.build import build_on_ranks

        return build_on_ranks(options, speculation)
