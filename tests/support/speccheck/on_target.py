"""Proposers that draft on the target's own cache, with a noisy copy of the target, and where they must not write."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import nn
from transformers import PreTrainedModel

from specdec.interfaces import (
    Capability,
    Draft,
    FinishReason,
    ProposeBatch,
    Proposer,
    ProposerConfig,
    TargetHandle,
)
from specdec_runtime.interfaces import CacheReader, PackedBatch, Runner, Segment


class NoiseConfig(ProposerConfig):
    """How far the form that drafts is from the target."""

    noise: float = 0.0
    """Standard deviation of what is added to weights, relative to theirs."""


def noisy(model: PreTrainedModel, amount: float) -> nn.Module:
    """Return the model with noise in its linear maps, whose rows in the cache are therefore not the target's."""
    generator = torch.Generator().manual_seed(5)
    for name, linear in list(model.named_modules()):
        if type(linear) is nn.Linear:
            own = copy.deepcopy(linear)
            noise = torch.randn(own.weight.shape, generator=generator) * own.weight.std() * amount
            own.weight = nn.Parameter(own.weight.detach() + noise, requires_grad=False)
            model.set_submodule(name, own)
    return model


class OnTarget(Proposer):
    """Drafts greedy chains, request by request."""

    name: ClassVar[str] = "on_target"
    Config: ClassVar[type[ProposerConfig]] = NoiseConfig
    capabilities = frozenset({Capability.TARGET_CACHE})
    runner: Runner

    def load(self, target: TargetHandle) -> None:
        assert isinstance(self.config, NoiseConfig)
        self.runner = target.make_target_runner(partial(noisy, amount=self.config.noise))

    def propose(self, batch: ProposeBatch) -> Draft:
        return Draft.from_lists([self.chain(batch, row) for row in range(batch.batch_size)])

    def chain(self, batch: ProposeBatch, row: int) -> list[int]:
        """Return the draft of a row."""
        drafted: list[int] = []
        last, place = int(batch.token_ids(row)[-1]), batch.num_tokens[row] - 1
        while len(drafted) < batch.max_nodes[row]:
            last = self.next(batch.first_slots[row], place + len(drafted), last)
            drafted.append(last)
        return drafted

    def next(self, first_slot: int, position: int, token_id: int) -> int:
        """Run one token; returns the best next one."""
        ids, positions = torch.tensor([token_id]), torch.tensor([position])
        segments = [Segment(0, 1, first_slot, position)]
        return int(self.runner.forward(PackedBatch(ids, positions, segments, None, None)).logits.argmax())

    def resume(self, request_id: str, token_ids: Sequence[int]) -> int:
        return len(token_ids)


class Straying(OnTarget):
    """Writes where no draft may: before the last token, behind the reserved slots, at another request, or out of turn."""

    name: ClassVar[str] = "straying"
    ways: ClassVar[dict[str, Callable[[int, int, int], tuple[int, int]]]] = {
        "before": lambda first, place, most: (first, place - 1),
        "behind": lambda first, place, most: (first, place + most + 1),
        "elsewhere": lambda first, place, most: (first + 1, place),
    }
    way: ClassVar[str] = "before"

    def chain(self, batch: ProposeBatch, row: int) -> list[int]:
        most = max(batch.max_nodes)
        if batch.max_nodes[row] and self.way in self.ways:
            place = self.ways[self.way](batch.first_slots[row], batch.num_tokens[row] - 1, most)
            self.next(*place, 1)
        self.kept = batch.first_slots[row], batch.num_tokens[row] - 1
        return super().chain(batch, row)

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        if self.way == "out of turn":
            self.next(*self.kept, 1)


class Reading(Proposer):
    """Keeps what it reads from the target's cache, and drafts a token for whoever may."""

    name: ClassVar[str] = "reading"
    capabilities = frozenset({Capability.TARGET_CACHE})
    num_more: ClassVar[int] = 0
    """How many more rows it reads than there are."""

    def load(self, target: TargetHandle) -> None:
        self.reader: CacheReader = target.make_cache_reader()
        self.num_layers = target.info.num_layers
        self.kept: list[tuple[list[int], list[tuple[torch.Tensor, torch.Tensor]]]] = []

    def propose(self, batch: ProposeBatch) -> Draft:
        for row, count in enumerate(batch.num_tokens):
            if batch.max_nodes[row]:
                place = batch.first_slots[row], 0, count - 1 + self.num_more
                rows = [self.reader.read(layer, *place) for layer in range(self.num_layers)]
                text = batch.token_ids(row)[:-1].tolist()
                self.kept.append((text, [(keys.clone(), values.clone()) for keys, values in rows]))
        return Draft.from_lists([[1] if most else [] for most in batch.max_nodes])
