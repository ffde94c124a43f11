"""A target handle that provides only the parts a proposer declares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NoReturn

import torch
from torch import nn

from specdec.interfaces import NEEDED_CAPABILITIES, Capability, MakeForm, TargetHandle

_REMEDY = "a proposer that declares none of NEEDED_CAPABILITIES needs token ids only"


class NotDeclared(RuntimeError):
    """A proposer used a part of the target without declaring the capability."""


class RefusingModule(nn.Module):
    """Placeholder for a module that must not be used.

    Args:
        part: the part it replaces.
    """

    def __init__(self, part: str) -> None:
        super().__init__()
        self._message = f"TargetHandle.{part} was used: {_REMEDY}"

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
        raise NotDeclared(f"TargetHandle.checkpoint was read: {_REMEDY}")

    def read(self, name: str) -> torch.Tensor:
        """Raise `NotDeclared`."""
        raise NotDeclared(f"TargetHandle.checkpoint was read: {_REMEDY}")


def borrowed(handle: TargetHandle, declared: frozenset[Capability]) -> TargetHandle:
    """Return a handle without what is not declared.

    Without runners unless `OWN_KV` or `TARGET_CACHE` is declared, and without weights if nothing is needed of the target.
    """
    lent = handle
    if Capability.OWN_KV not in declared:
        lent = replace(lent, runner_factory=_refuse_runner)
    if Capability.TARGET_CACHE not in declared:
        lent = replace(
            lent, target_runner_factory=_refuse_target_runner, cache_reader_factory=_refuse_cache_reader
        )
    if not declared & NEEDED_CAPABILITIES:
        lent = replace(
            lent,
            embed_tokens=RefusingModule("embed_tokens"),
            lm_head=RefusingModule("lm_head"),
            path=None,
            revision=None,
            checkpoint=RefusingReader(),
        )
    return lent


def _refuse_target_runner(make_form: MakeForm) -> NoReturn:
    raise NotDeclared("TargetHandle.make_target_runner was called: declare TARGET_CACHE")


def _refuse_cache_reader() -> NoReturn:
    raise NotDeclared("TargetHandle.make_cache_reader was called: declare TARGET_CACHE")


def _refuse_runner(module: nn.Module) -> NoReturn:
    raise NotDeclared("TargetHandle.make_runner was called: declare OWN_KV")
