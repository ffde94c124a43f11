"""specdec-train: trains specdec's zoo, the small target model and the draft heads for it."""

from __future__ import annotations

from specdec_train.corpus import Corpus, SourceFile, read_corpus, stdlib_root
from specdec_train.loop import LogEntry, LoopConfig, RunState, train
from specdec_train.optimizer import OptimizerPair
from specdec_train.packing import PackedDocuments
from specdec_train.prompts import Prompt, cut_prompts
from specdec_train.recipe import ModelShape, Recipe
from specdec_train.run import HeldoutLoss, TrainedTarget, train_target
from specdec_train.schedule import Schedule

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
