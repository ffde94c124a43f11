"""Proposers that hold what earlier requests began with, to be asked for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from speccheck.proposers import HiddenRecorder, Recorder, ScriptConfig, Told
from specdec.interfaces import Capability, FinishReason, ProposerConfig, TargetInfo, TokenIds


class ResumeConfig(ScriptConfig):
    """How a proposer answers when it is asked for a prefix."""

    most: int = 10**6
    """Tokens that it holds at most."""
    answer: Any = None
    """What it returns instead of what it holds; `raise` raises."""


class Resuming(HiddenRecorder):
    """Remembers tokens and states of the requests that ended, and takes over what a new one shares with them."""

    name: ClassVar[str] = "resuming"
    Config: ClassVar[type[ProposerConfig]] = ResumeConfig

    def __init__(self, config: ProposerConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        assert isinstance(config, ResumeConfig)
        self.resume_config = config
        self.known: list[tuple[list[int], list[tuple[torch.Tensor, ...]]]] = []
        self.asked: list[tuple[str, int, int]] = []
        """Request, length of the cached prefix, and how much of it is held."""

    def resume(self, request_id: str, token_ids: TokenIds) -> int:
        wanted = token_ids.tolist()
        if self.resume_config.answer is not None:
            self.asked.append((request_id, len(wanted), 0))
            if self.resume_config.answer == "raise":
                raise RuntimeError("no idea")
            return self.resume_config.answer  # type: ignore[no-any-return]  # that is the point
        own = self.held.get(request_id)
        if own is not None:  # it was preempted
            self.known.append((own.tokens, self.states[request_id]))
        shared, states = max(
            ((common(tokens, wanted), states) for tokens, states in self.known),
            key=lambda entry: entry[0],
            default=(0, []),
        )
        held = min(shared, len(states), self.resume_config.most)
        self.held[request_id] = Told(wanted[:held], 0)
        self.states[request_id] = list(states[:held])
        self.asked.append((request_id, len(wanted), held))
        return held

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        for name in request_ids:
            if name in self.states and name in self.held:
                self.known.append((list(self.held[name].tokens), list(self.states[name])))
        super().finish(request_ids, reason)


class TokenResuming(Recorder):
    """Reads no states; holds every prefix that is cached."""

    name: ClassVar[str] = "token_resuming"

    def resume(self, request_id: str, token_ids: TokenIds) -> int:
        if request_id in self.held:
            self.complaints.append(f"{request_id}: asked for a prefix of a request that it knows")
        self.held[request_id] = Told(token_ids.tolist(), 0)
        return len(token_ids)


class Noting(TokenResuming):
    """Has a cache of its own, which lacks every prefix, and notes each request that it is asked about."""

    name: ClassVar[str] = "noting"
    capabilities = TokenResuming.capabilities | {Capability.OWN_KV}

    def resume(self, request_id: str, token_ids: TokenIds) -> int:
        super().resume(request_id, token_ids[:0])
        return 0


def common(first: list[int], second: list[int]) -> int:
    """Return how many tokens two texts begin with alike."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
