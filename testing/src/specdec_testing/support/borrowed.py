"""A target handle that provides only the parts a proposer declares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NoReturn

import torch
from torch import nn

from specdec.interfaces import Capability, TargetHandle


class NotDeclared(RuntimeError):
    """A proposer used a part of the target without declaring the capability."""


class RefusingModule(nn.Module):
    """Placeholder for a module that must not be used.

    Args:
        part: the part it replaces.
        remedy: the capability to declare.
    """

    def __init__(self, part: str, remedy: str) -> None:
        super().__init__()
        self._message = f"TargetHandle.{part} was used: {remedy}"

    def forward(self, *inputs: object) -> NoReturn:
        """Raise `NotDeclared`."""
        raise NotDeclared(self._message)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            return super().__getattr__(name)
        raise NotDeclared(self.__dict__["_message"])


class RefusingReader:
    """Placeholder for a checkpoint that must not be read."""

    def names(self) -> Iterator[str]:
        """Raise `NotDeclared`."""
        raise NotDeclared("TargetHandle.checkpoint was read: TOKENS_ONLY needs no weights")

    def read(self, name: str) -> torch.Tensor:
        """Raise `NotDeclared`."""
        raise NotDeclared("TargetHandle.checkpoint was read: TOKENS_ONLY needs no weights")


def borrowed(handle: TargetHandle, declared: frozenset[Capability]) -> TargetHandle:
    """Return a handle whose parts raise `NotDeclared` unless the matching capability is declared.

    With `TOKENS_ONLY` the checkpoint cannot be read either.
    """
    lent = handle
    if Capability.EMBEDDINGS not in declared:
        lent = replace(lent, embed_tokens=RefusingModule("embed_tokens", "declare EMBEDDINGS"))
    if Capability.LM_HEAD not in declared:
        lent = replace(lent, lm_head=RefusingModule("lm_head", "declare LM_HEAD"))
    if Capability.OWN_KV not in declared:
        lent = replace(lent, runner_factory=_refuse_runner)
    if Capability.TOKENS_ONLY in declared:
        lent = replace(lent, path=None, revision=None, checkpoint=RefusingReader())
    return lent


def _refuse_runner(module: nn.Module) -> NoReturn:
    raise NotDeclared("TargetHandle.make_runner was called: declare OWN_KV")
