"""Entry point of a rank: `python -m specdec_runtime.parallel.follow`, with its task on standard input."""

from __future__ import annotations

import os
import pickle
import sys
import threading

import torch

from specdec import ConfigError, EngineError, ModelError
from specdec_runtime.parallel.followers import RankTask, be_here, open_store
from specdec_runtime.parallel.group import RankGroup
from specdec_runtime.parallel.scorer import SplitScorer


def follow(task: RankTask) -> None:
    """Load this rank's part of the target, and execute rank 0's commands until that ends."""
    device = torch.device(task.options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    store = open_store(task.size, task.port)
    be_here(store, task.rank)
    ranks = RankGroup(task.rank, task.size, device.type, store)
    scorer = SplitScorer(ranks, needs_ends=task.needs_ends)
    scorer.load(task.options)
    while True:
        scorer.models.obey(ranks.receive())


def main() -> int:
    """Follow until rank 0 ends or a rank fails, which rank 0 reports."""
    task = pickle.load(sys.stdin.buffer)  # written by rank 0
    assert isinstance(task, RankTask)
    threading.Thread(target=_exit_with_leader, daemon=True).start()
    try:
        follow(task)
    except (ConfigError, EngineError, ModelError):
        return 1
    return 0


def _exit_with_leader() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
