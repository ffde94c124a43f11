"""specdec's proposers in vLLM, where `additional_config` has a `specdec`; see `specdec_vllm.plugin`.

Names are loaded on first use, so importing this package imports neither vLLM nor torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdec_vllm.drafter import Proposer
    from specdec_vllm.workers.cpu import CPUWorker
    from specdec_vllm.workers.gpu import GPUWorker

_HOME = {
    "CPUWorker": "specdec_vllm.workers.cpu",
    "GPUWorker": "specdec_vllm.workers.gpu",
    "Proposer": "specdec_vllm.drafter",
}

__all__ = ["CPUWorker", "GPUWorker", "Proposer"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
