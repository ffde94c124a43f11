"""A verification scheme: what a verifier computes before any draw, and the rule by which draws decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import torch


class Rule(Enum):
    """The node at which the accepted path ends, given the nodes that pass."""

    FIRST_CHILD = 0
    """Go from the last committed token to its first passing child, from there to its first passing child, and
    so on."""
    POST_ORDER = 1
    """The first passing node in post-order (children before their parent); in a chain the deepest one."""
    DEEPEST = 2
    """The deepest node that passes together with all its ancestors; among equally deep ones the first."""


@dataclass(frozen=True)
class Scheme:
    """The verification scheme of a batch of drafts: a function of drafts, p and q alone.

    A draft is verified in two draws. One uniform per node decides, by threshold and rule, where the accepted
    path stops. The token after it is drawn from `emission`.
    """

    thresholds: torch.Tensor
    """`[B, N]`: a node passes if its uniform is below its threshold. Padding has 0."""
    rule: Rule
    emission: Callable[[torch.Tensor], torch.Tensor]
    """Takes `[B]` last accepted nodes, -1 for none; returns the weights `[B, V]` of the next token, which need not sum to 1."""
