"""A verification scheme: what a verifier computes before any draw, and how draws decide by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import torch


class Rule(Enum):
    """Which node the accepted path ends at, given which nodes pass."""

    FIRST_CHILD = 0
    """From the last committed token to its first child that passes, from there to its first, and so on."""
    POST_ORDER = 1
    """The first node that passes when children are asked before their parent: in a chain the deepest one."""
    DEEPEST = 2
    """The deepest node that passes together with all its ancestors; among equally deep ones the first."""


@dataclass(frozen=True)
class Law:
    """What a verifier does with a batch of drafts: a function of drafts, p and q alone.

    A draft is verified in two draws: one uniform per node decides, by threshold and rule, where the accepted path stops; the
    token after it is drawn from `emission`.
    """

    thresholds: torch.Tensor
    """`[B, N]`: a node passes where its uniform lies below. Padding has 0."""
    rule: Rule
    emission: Callable[[torch.Tensor], torch.Tensor]
    """Takes `[B]` last accepted nodes, -1 for none; returns the weights `[B, V]` of the next token, which need not sum to 1."""
