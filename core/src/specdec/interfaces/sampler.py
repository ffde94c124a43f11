"""The sampler: decides which drafted tokens are accepted and samples one more token."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar

import torch

from specdec.config_model import ConfigModel
from specdec.interfaces.capability import Capability
from specdec.interfaces.device_nodes import DeviceNodes
from specdec.interfaces.draft import DrawnNodes
from specdec.interfaces.pass_memory import PassMemory
from specdec.interfaces.request_table import RequestTable
from specdec.interfaces.scorer import Scores
from specdec.interfaces.sent import Transfer
from specdec.sampling_params import SamplingParams

if TYPE_CHECKING:
    from specdec.interfaces.async_verdict import AsyncVerdict


class SamplerConfig(ConfigModel):
    """Base class of a sampler's configuration."""


Listed = Mapping[int, Sequence[tuple[float, int, list[int], list[float]]]]
"""By row, for each of its tokens: log probability, rank, and ids and log probabilities of the most probable tokens."""


@dataclass(frozen=True)
class VerifyBatch:
    """The drafts that are verified, and the requests that they belong to; row i of every field is one request."""

    nodes: Sequence[Sequence[int]]
    """`[B][num_nodes]`: the token ids that were scored, of each request's draft. A drawn id outside the vocabulary is replaced
    by a valid one. With `device_nodes` all are empty, see `read`."""
    num_tokens: Sequence[int]
    """`[B]`: number of committed tokens when the step began; also the absolute position of the first token to
    emit."""
    seeds: Sequence[int]
    """`[B]`: seed of each request's noise."""
    sample_indices: Sequence[int]
    """`[B]`: which of its prompt's `n` samples each request is."""
    sampling_params: Sequence[SamplingParams]
    """`[B]`: the sampling parameters of each request, which are already applied to `Scores.logits`."""
    parents: Sequence[Sequence[int]] | None = None
    """`[B][num_nodes]`: the parent of every node, which precedes it; -1 is the last committed token. None if all drafts are
    chains, or with `device_nodes`."""
    drawn: DrawnNodes | None = None
    """The distributions q that nodes were drawn from, and their ids as drawn. None if no request has any: all nodes are point
    masses, as are those of requests without q otherwise."""
    num_logprobs: Sequence[int] = ()
    """`[B]`: most probable tokens whose log probabilities each request lists beside its own; -1 for none. Or empty."""
    num_top_k: int = 0
    """Most probable ids of every row of `Scores.raw_logits` that the proposer needs, for `Verdict.top_k`; 0 for none."""
    device_nodes: DeviceNodes | None = None
    """The nodes of all requests, if they are on a device. A `AsyncVerdict` with places must `take` them with its verdict:
    the next pass may be sent into their memory before the host has it."""
    pass_memory: PassMemory | None = None
    """What the device holds of running requests between passes; None, or without numbers, where the host has it all."""
    table: RequestTable | None = None
    """The committed tokens of all requests, to which a verification that does not wait appends; None without."""
    lines: Sequence[int] = ()
    """`[B]` with `table`: each request's line there."""
    transfer: Transfer | None = None
    """The arrays of `Sampler.transfer`, which go to the device with the pass; None where nothing is sent."""

    @cached_property
    def num_nodes(self) -> list[int]:
        """`[B]`: number of nodes of each request's draft."""
        return [*map(len, self.nodes)] if self.device_nodes is None else [*self.device_nodes.num_nodes]

    @property
    def has_trees(self) -> bool:
        """Whether nodes have parents, on the host or on a device."""
        return self.parents is not None if self.device_nodes is None else self.device_nodes.is_tree

    @cached_property
    def row_starts(self) -> list[int]:
        """`[B]`: row of `Scores.logits` of each request's last committed token; its nodes' rows follow in draft order.

        Requests are packed in order, each in `1 + num_nodes` rows.
        """
        return [*accumulate((count + 1 for count in self.num_nodes), initial=0)][:-1]

    @cached_property
    def is_all_greedy(self) -> bool:
        """Whether every request has temperature 0."""
        return all(params.is_greedy for params in self.sampling_params)

    def read(self) -> VerifyBatch:
        """Return the batch with all nodes on the host; waits for a device that has them, unless they came with the verdict."""
        if self.device_nodes is None:
            return self
        nodes, parents = self.device_nodes.read()
        return replace(self, nodes=nodes, parents=parents, device_nodes=None)

    def row_of(self, request: int, node: int) -> int:
        """Return the row of `Scores.logits` of a node of a request's draft; node -1 is the last committed token."""
        return self.row_starts[request] + node + 1


@dataclass(frozen=True)
class Verdict:
    """The result of verification, as ragged host rows: one entry per request."""

    accepted_nodes: Sequence[Sequence[int]]
    """`[B][num_accepted]`: the accepted path, as indices into the row of `VerifyBatch.nodes`."""
    token_ids: Sequence[Sequence[int]]
    """`[B][num_accepted + 1]`: emitted tokens: the accepted path and the correction or bonus token."""
    is_valid: Sequence[bool] | None = None
    """`[R]`: `Scores.is_valid` of rows that tokens were drawn from, if it is read with these; None leaves it to the engine."""
    listed: Listed | None = None
    """For each row with `num_logprobs`, of each of its tokens: log probability and rank, ids and log probabilities of the
    most probable tokens, read with the tokens; None leaves them to the engine."""
    top_k: tuple[torch.Tensor, torch.Tensor] | None = field(default=None, compare=False)
    """`[R, num_top_k]` of `raw_logits`: the most probable ids, and log probabilities, on the host; None likewise."""
    paths: torch.Tensor | None = field(default=None, compare=False)
    """`[B, N]` int64 `accepted_nodes` of trees on the device, padded with -1, from a sampler that found them there."""

    @property
    def num_accepted(self) -> list[int]:
        """`[B]`: accepted drafted tokens; excludes the correction or bonus token."""
        return [len(nodes) for nodes in self.accepted_nodes]


class Sampler(ABC):
    """Verifies drafts.

    Temperature 0 accepts the longest path of argmax matches, ties to the lowest id, unless `is_greedy_exact`
    is False.
    """

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    api_version: ClassVar[int] = 1
    """The `SPECDEC_API` this class was written for; see `Proposer.api_version`."""
    Config: ClassVar[type[SamplerConfig]] = SamplerConfig
    is_lossless: ClassVar[bool]
    """Whether the emitted tokens follow the target's distribution for every draft with exact q. False is shown to users."""
    is_greedy_exact: ClassVar[bool] = True
    """Whether temperature 0 accepts the longest path of argmax matches. False means that drafted tokens are
    accepted whatever they are; a lossless sampler cannot set it."""
    is_coupled: ClassVar[bool] = False
    """Whether tokens are chosen with the noise of `Draws.coupled`; drafts made with it are accepted more
    often."""
    capabilities: ClassVar[frozenset[Capability]] = frozenset()
    """The parts of a draft that the sampler can use: `TREE`, `DRAFT_PROBS`."""
    finds_invalid_rows: ClassVar[bool] = False
    """Whether `verify` finds the rows that are not numbers itself, for `Verdict.is_valid`; otherwise they are uniform."""

    def __init__(self, config: SamplerConfig) -> None:
        self.config = config

    def transfer(self, batch: VerifyBatch, device: torch.device) -> Transfer | None:
        """Return what `verify` will read on a device of this batch, to be sent with the pass; None for nothing."""
        return None

    def cuts(self, device: torch.device) -> bool:
        """Return whether `verify` applies top-k and top-p on a device itself, see `Scores.is_cut`."""
        return False

    def begin(self, scores: Scores, batch: VerifyBatch) -> AsyncVerdict | None:
        """Begin to verify on a device without waiting for it; None where that is not possible, and then `verify` is called."""
        return None

    @abstractmethod
    def verify(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        """Decide which drafted nodes are accepted and sample one more token for every request.

        Args:
            scores: p-logits `[R, V]` of the last committed token and of every node, R = sum of `1 + num_nodes`.
            batch: the drafts and their requests; it says which row is whose.
        """
