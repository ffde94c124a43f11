"""specdec-train: trains draft models and heads for any target.

Names are imported on first use: a command line that only shows its options needs neither torch nor
transformers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

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


__getattr__ = lazily(__name__)
