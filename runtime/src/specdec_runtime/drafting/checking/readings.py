"""The readings that the files of a head leave open, as a plugin tells them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from specdec.interfaces import TargetHandle
from specdec_runtime.drafting.checking.likelihood import chain_likelihoods
from specdec_runtime.drafting.checking.states import TargetStates
from specdec_runtime.drafting.checkpoint import HeadCheckpoint
from specdec_runtime.interfaces.head import DraftHead
from specdec_runtime.runner import ModuleRunner


@dataclass(frozen=True)
class Reading:
    """One way to run a head; plugins add what differs.

    Args:
        name: what differs from the files; empty for what they say.
        remedy: how to have it, in words.
    """

    name: str
    remedy: str


class HeadReadings(ABC):
    """How the files of one head can be read. A class of proposers names its own as `Readings`.

    Args:
        checkpoint: its files.
        target: its target.
    """

    layers: Sequence[int] = ()
    """Layers of the target whose keys and values the head reads; see `TargetStates.rows`."""

    def __init__(self, checkpoint: HeadCheckpoint, target: TargetHandle) -> None:
        self.checkpoint, self.target = checkpoint, target

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return what the files say: `method`, `dialect`, `num_logits`, and whatever else describes the head."""

    @abstractmethod
    def published(self) -> Any:
        """Return the `Reading` of the files.

        Raises:
            ModelError: for files that cannot be read.
        """

    @abstractmethod
    def others(self, reading: Any, longest: int) -> Iterator[Any]:
        """Yield the readings that differ from one in one thing.

        Args:
            reading: one of these.
            longest: length of the longest text, in tokens.
        """

    @abstractmethod
    def likelihoods(self, reading: Any, texts: list[TargetStates]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the log-likelihood of every token that can be drafted, as first and as second token of a draft.

        Returns:
            float64 `[a]` and `[b]`, of the same tokens for every reading.
        """


def of_chain(
    head: DraftHead, features: list[torch.Tensor], texts: list[TargetStates], target: TargetHandle
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what `HeadReadings.likelihoods` does, for a head on a cache.

    Args:
        head: the head.
        features: `[n, F]` for each text, what it makes of the target's states.
        texts: the texts.
        target: the target.
    """
    runner = ModuleRunner(head, target.info.device, target.info.max_model_len, is_fused=False)
    runner.allocate(2 * max(len(text.tokens) for text in texts))
    found = [chain_likelihoods(runner, each, text.tokens) for each, text in zip(features, texts, strict=True)]
    return torch.cat([first for first, _ in found]), torch.cat([second for _, second in found])
