"""Structured outputs: what a package that compiles grammars does for core."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from specdec.interfaces.part import Part
from specdec.interfaces.target import TargetInfo
from specdec.structured_outputs import StructuredOutputsParams

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class GrammarState(ABC):
    """The grammar of one sample: follows its committed tokens, and looks ahead along drafts without changing its state."""

    @abstractmethod
    def begin(self) -> GrammarState:
        """Return the state of another text that has not begun; what becomes of it changes nothing here."""

    @abstractmethod
    def advance(self, token_ids: Sequence[int]) -> None:
        """Advance by committed tokens; tokens after a complete text are ignored.

        A token that violates the grammar, which only a lossy sampler can emit, ends the constraint for the rest of the text.
        """

    @abstractmethod
    def allowed_nodes(self, nodes: Sequence[int], parents: Sequence[int] | None) -> list[bool]:
        """Return for each drafted node whether the grammar allows it and all its ancestors, as far as it can be followed.

        Args:
            nodes: token ids, parents before children.
            parents: the index of each node's parent, -1 for the last committed token; None for a chain.

        Raises:
            ConfigError: if the grammar needs too much work for this text.
        """

    @abstractmethod
    def mask(self, logits: torch.Tensor, nodes: Sequence[int], parents: Sequence[int] | None) -> None:
        """Set forbidden ids of rows `[len(nodes) + 1, V]` to -inf: after the last committed token, then after each node.

        Rows after a node that is forbidden, or that completes the text, are not changed: nothing from them is kept. Rows
        after one from which the grammar cannot be followed allow nothing: the draft ends there.

        Raises:
            ConfigError: if the grammar needs too much work for this text, the draft aside.
        """

    @abstractmethod
    def mask_after(self, path: Sequence[int]) -> torch.Tensor:
        """Return the bitmask `[ceil(V / 32)]` int32 of ids allowed after drafting `path`; empty after a path that is not
        allowed or that completes the text."""

    @abstractmethod
    def forced(self, most: int, least_chance: float = 0.0) -> list[int]:
        """Return at most `most` tokens that come next whatever the text, or that do with at least `least_chance`."""


class Grammars(Part):
    """Part `structured_outputs`: compiles the constraints of requests. One object serves one target."""

    @abstractmethod
    def compile(
        self, params: StructuredOutputsParams, info: TargetInfo, tokenizer: PreTrainedTokenizerBase
    ) -> GrammarState:
        """Return the grammar state of a sample without tokens; called from several threads.

        No two samples may share what an error in one, or the memory that it takes, would cost the other.

        Args:
            params: the constraint.
            info: facts about the target.
            tokenizer: the target's.

        Raises:
            ConfigError: if the constraint is invalid or takes too much time or memory.
        """
