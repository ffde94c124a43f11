"""The part of specdec that this package is; what it needs is imported when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specdec.assembly import TensorParallel
from specdec_parallel.place import rank_place

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from specdec import EngineOptions
    from specdec.assembly import BuiltEngine
    from specdec.config import ResolvedSpeculation


class Ranks(TensorParallel):
    """The processes that `torchrun` has started."""

    name = "tensor_parallel"

    def check(self, size: int) -> None:
        """See `TensorParallel.check`."""
        rank_place(size)

    def load_arguments(self, config: PretrainedConfig, name: str, size: int) -> dict[str, Any]:
        """See `SplitLoading.load_arguments`."""
        from specdec_parallel.splitting import split_arguments

        return split_arguments(config, name, size)

    def build(self, options: EngineOptions, speculation: ResolvedSpeculation | None) -> BuiltEngine:
        """See `TensorParallel.build`."""
        from specdec_parallel.build import build_on_ranks

        return build_on_ranks(options, speculation)
