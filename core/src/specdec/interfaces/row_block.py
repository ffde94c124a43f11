"""Rows of logits, and what a request's parameters change in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from specdec.interfaces.batch import TokenIds
from specdec.interfaces.device_nodes import DeviceNodes
from specdec.interfaces.grammar import GrammarState
from specdec.sampling_params import SamplingParams


class LogitsRules(Protocol):
    """What changes one sample's logits beyond temperature, top-k, top-p and min-p, along its drafted paths.

    A scorer hands it on to `p_logits`, in a `RowBlock`. A dead row is one from which no token can be chosen: all ids are
    forbidden, the logits are NaN, or a rule raised. It keeps the target's logits and is recorded; the sample ends if a token
    has to be chosen from it.
    """

    grammar: GrammarState | None
    """The sample's grammar; it applies last, so that nothing can allow what it forbids."""
    dead_rows: dict[int, str]
    """Reason for each dead row of the last block."""
    causes: dict[int, BaseException]
    """Exceptions that the caller's own functions raised, by row of the last block."""


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Consecutive logits rows of one request: the last committed token's row, then those of its drafted nodes."""

    params: SamplingParams
    nodes: Sequence[int] = ()
    """Drafted token ids; none with `device_nodes`."""
    parents: Sequence[int] | None = None
    """Parent of each node, -1 for the last committed token; None for a chain."""
    rules: LogitsRules | None = None
    """Rules that change the logits beyond temperature and truncation; None for most requests."""
    committed: TokenIds | None = None
    """Committed tokens, prompt included; needed with `rules`."""
    num_prompt_tokens: int = 0
    device_nodes: DeviceNodes | None = None
    """The nodes of all requests, if they are on a device."""
    device_row: int = 0
    """Its row of `device_nodes`."""

    @property
    def num_nodes(self) -> int:
        """Number of drafted nodes."""
        return len(self.nodes) if self.device_nodes is None else self.device_nodes.num_nodes[self.device_row]

    @property
    def num_rows(self) -> int:
        """Number of rows of the block."""
        return self.num_nodes + 1

    @property
    def token_ids(self) -> TokenIds:
        """Committed tokens, prompt included."""
        assert self.committed is not None
        return self.committed

    @property
    def output_token_ids(self) -> TokenIds:
        """Committed tokens after the prompt."""
        return self.token_ids[self.num_prompt_tokens :]

    def read(self) -> RowBlock:
        """Return the block with its nodes on the host; waits for a device that has them."""
        if self.device_nodes is None:
            return self
        nodes, parents = self.device_nodes.read()
        above = None if parents is None else parents[self.device_row]
        return replace(self, nodes=nodes[self.device_row], parents=above, device_nodes=None)

    def paths(self) -> list[tuple[int, ...]]:
        """Return, for each row, the drafted tokens between the last committed token and the token the row predicts."""
        paths: list[tuple[int, ...]] = [()]
        for node, token_id in enumerate(self.nodes):
            parent = node - 1 if self.parents is None else self.parents[node]
            paths.append((*paths[parent + 1], token_id))
        return paths


def node_depths(num_nodes: int, parents: Sequence[int] | None) -> list[int]:
    """Return the depth of every node; children of the last committed token have depth 1."""
    if parents is None:
        return list(range(1, num_nodes + 1))
    depths: list[int] = []
    for parent in parents[:num_nodes]:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    return depths
