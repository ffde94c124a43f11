"""One rank's part of the models of an engine that are split over the ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from specdec_runtime.parallel.group import RankGroup
from specdec_runtime.parallel.messages import Command
from specdec_runtime.parallel.passes import PassArrays, on_device
from specdec_runtime.parallel.runner import SplitRunner

LoadPart = Callable[[dict[str, Any]], PreTrainedModel]
MakeRunner = Callable[[PreTrainedModel], SplitRunner]


class SplitModels:
    """Runners of split models, by number. When rank 0 uses one, it tells the other ranks to call the methods here.

    Args:
        ranks: all ranks.
        load_part: loads this rank's part of a draft model.
        make_runner: makes the runner of a draft model.
    """

    def __init__(self, ranks: RankGroup, load_part: LoadPart, make_runner: MakeRunner) -> None:
        self.ranks = ranks
        self._load_part, self._make_runner = load_part, make_runner
        self._runners: list[SplitRunner] = []
        self._drafts: list[PreTrainedModel] = []

    def add(self, runner: SplitRunner) -> int:
        """Register a runner, in the same order on all ranks; returns its number."""
        self._runners.append(runner)
        return len(self._runners) - 1

    def broadcast(self, action: str, *arguments: Any) -> None:
        """Make the other ranks call one of their methods; does nothing on the other ranks themselves."""
        if self.ranks.is_leader:
            self.ranks.send(Command(action, arguments))

    def obey(self, order: Command) -> None:
        """Execute an order of rank 0."""
        with self.ranks.together():
            getattr(self, order.action)(*order.arguments)

    def run_pass(self, number: int, batch: PassArrays, shared: dict[int, tuple[int, int]]) -> None:
        """Run a pass with a runner; requests share rows as in `KVCache.shared`."""
        runner = self._runners[number]
        runner.cache.shared = shared
        runner.forward(on_device(batch, runner.device))

    def allocate(self, number: int, num_slots: int) -> None:
        """Allocate the cache of a runner."""
        self._runners[number].allocate(num_slots)

    def capture_hidden(self, aux_layer_ids: tuple[int, ...]) -> None:
        """Make the target's passes return hidden states, as on rank 0."""
        self._runners[0].capture_hidden(aux_layer_ids)

    def copy_rows(self, number: int, source: int, destination: int, num_rows: int) -> None:
        """Copy rows within a runner's cache."""
        self._runners[number].cache.copy(source, destination, num_rows)

    def gather_rows(self, number: int, first_slots: list[int], paths: list[list[int]]) -> None:
        """Move rows of a runner's cache; see `KVCache.gather`."""
        cache = self._runners[number].cache
        cache.gather(*(torch.tensor(part, device=cache.device) for part in (first_slots, paths)))

    def load_draft(self, arguments: dict[str, Any]) -> PreTrainedModel:
        """Load this rank's part of a draft model."""
        self.broadcast("load_draft", arguments)
        with self.ranks.together():
            model = self._load_part(arguments)
        self._drafts.append(model)
        return model

    def number_of(self, model: nn.Module) -> int | None:
        """Return the number of a model that `load_draft` returned; None for other models."""
        return next((number for number, draft in enumerate(self._drafts) if draft is model), None)

    def make_draft_runner(self, number: int) -> SplitRunner:
        """Make the runner of a draft model; models are numbered in the order they were loaded."""
        self.broadcast("make_draft_runner", number)
        with self.ranks.together():
            return self._make_runner(self._drafts[number])
