"""specdec-train: trains specdec's zoo, the small target model and the draft heads for it.

Names are imported on first use: a command line that only shows its options needs neither torch nor
transformers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdec_train.corpus import Corpus as Corpus
    from specdec_train.corpus import SourceFile as SourceFile
    from specdec_train.corpus import read_corpus as read_corpus
    from specdec_train.corpus import stdlib_root as stdlib_root
    from specdec_train.loop import LogEntry as LogEntry
    from specdec_train.loop import LoopConfig as LoopConfig
    from specdec_train.loop import RunState as RunState
    from specdec_train.loop import train as train
    from specdec_train.optimizer import OptimizerPair as OptimizerPair
    from specdec_train.packing import PackedDocuments as PackedDocuments
    from specdec_train.prompts import Prompt as Prompt
    from specdec_train.prompts import cut_prompts as cut_prompts
    from specdec_train.recipe import ModelShape as ModelShape
    from specdec_train.recipe import Recipe as Recipe
    from specdec_train.run import HeldoutLoss as HeldoutLoss
    from specdec_train.run import TrainedTarget as TrainedTarget
    from specdec_train.run import train_target as train_target
    from specdec_train.schedule import Schedule as Schedule

__all__ = [
    "Corpus",
    "HeldoutLoss",
    "LogEntry",
    "LoopConfig",
    "ModelShape",
    "OptimizerPair",
    "PackedDocuments",
    "Prompt",
    "Recipe",
    "RunState",
    "Schedule",
    "SourceFile",
    "TrainedTarget",
    "cut_prompts",
    "read_corpus",
    "stdlib_root",
    "train",
    "train_target",
]

_HOME = {
    "Corpus": "specdec_train.corpus",
    "SourceFile": "specdec_train.corpus",
    "read_corpus": "specdec_train.corpus",
    "stdlib_root": "specdec_train.corpus",
    "LogEntry": "specdec_train.loop",
    "LoopConfig": "specdec_train.loop",
    "RunState": "specdec_train.loop",
    "train": "specdec_train.loop",
    "OptimizerPair": "specdec_train.optimizer",
    "PackedDocuments": "specdec_train.packing",
    "Prompt": "specdec_train.prompts",
    "cut_prompts": "specdec_train.prompts",
    "ModelShape": "specdec_train.recipe",
    "Recipe": "specdec_train.recipe",
    "HeldoutLoss": "specdec_train.run",
    "TrainedTarget": "specdec_train.run",
    "train_target": "specdec_train.run",
    "Schedule": "specdec_train.schedule",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'specdec_train' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
