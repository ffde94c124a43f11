"""A target that lends only what a proposer says it needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NoReturn

import torch
from torch import nn

from specdec.interfaces import Capability, TargetHandle
from specdec.runner import DraftHead


class NotDeclared(RuntimeError):
    """A proposer reached for a part of the target that it does not declare to need."""


class RefusingModule(nn.Module):
    """Stands for a module that may not be used.

    Args:
        part: what it stands for.
        remedy: what to declare.
    """

    def __init__(self, part: str, remedy: str) -> None:
        super().__init__()
        self._message = f"TargetHandle.{part} was used: {remedy}"

    def forward(self, *inputs: object) -> NoReturn:
        """Refuse."""
        raise NotDeclared(self._message)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            return super().__getattr__(name)
        raise NotDeclared(self.__dict__["_message"])


class RefusingReader:
    """Stands for a checkpoint that may not be read."""

    def names(self) -> Iterator[str]:
        """Refuse."""
        raise NotDeclared("TargetHandle.checkpoint was read: TOKENS_ONLY needs no weights")

    def read(self, name: str) -> torch.Tensor:
        """Refuse."""
        raise NotDeclared("TargetHandle.checkpoint was read: TOKENS_ONLY needs no weights")


def borrowed(handle: TargetHandle, declared: frozenset[Capability]) -> TargetHandle:
    """Return a handle whose parts raise `NotDeclared` unless the capability that goes with them is declared.

    For `TOKENS_ONLY` there is no checkpoint either.
    """
    lent = handle
    if Capability.EMBEDDINGS not in declared:
        lent = replace(lent, embed_tokens=RefusingModule("embed_tokens", "declare EMBEDDINGS"))
    if Capability.LM_HEAD not in declared:
        lent = replace(lent, lm_head=RefusingModule("lm_head", "declare LM_HEAD"))
    if Capability.OWN_KV not in declared:
        lent = replace(lent, runner_factory=_refuse_runner, head_runner_factory=_refuse_head_runner)
    if Capability.TOKENS_ONLY in declared:
        lent = replace(lent, path=None, revision=None, checkpoint=RefusingReader())
    return lent


def _refuse_runner(model: nn.Module) -> NoReturn:
    raise NotDeclared("TargetHandle.make_runner was called: declare OWN_KV")


def _refuse_head_runner(head: DraftHead) -> NoReturn:
    raise NotDeclared("TargetHandle.make_head_runner was called: declare OWN_KV")
