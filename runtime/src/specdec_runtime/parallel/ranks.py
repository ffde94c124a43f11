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
        """See `TensorParallel.check`."""
        process_rank(size)

    def build(self, options: EngineOptions, speculation: ResolvedSpeculation | None) -> BuiltEngine:
        """See `TensorParallel.build`."""
        from specdec_runtime.parallel.build import build_on_ranks

        return build_on_ranks(options, speculation)
