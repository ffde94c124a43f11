"""specdec-train: trains draft models and heads for any target.

Names are imported on first use: a command line that only shows its options needs neither torch nor
transformers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdec_train.loop import LogEntry, LoopConfig, RunState, train
    from specdec_train.optimizer import OptimizerPair
    from specdec_train.packing import PackedDocuments
    from specdec_train.schedule import Schedule

__all__ = [
    "LogEntry",
    "LoopConfig",
    "OptimizerPair",
    "PackedDocuments",
    "RunState",
    "Schedule",
    "train",
]

_HOME = {
    "LogEntry": "specdec_train.loop",
    "LoopConfig": "specdec_train.loop",
    "RunState": "specdec_train.loop",
    "train": "specdec_train.loop",
    "OptimizerPair": "specdec_train.optimizer",
    "PackedDocuments": "specdec_train.packing",
    "Schedule": "specdec_train.schedule",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'specdec_train' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
