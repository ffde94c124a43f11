"""The sampler: decides which drafted tokens are accepted and samples one more token."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import torch

from specdec.interfaces.capability import Capability
from specdec.interfaces.draft import CheckedDraft
from specdec.interfaces.scorer import Scores
from specdec.interfaces.sent import Along
from specdec.keys import Keys
from specdec.sampling_params import SamplingParams

if TYPE_CHECKING:
    from specdec.interfaces.begun import Begun


class SamplerConfig(Keys):
    """Base class of a sampler's configuration."""


Listed = Mapping[int, Sequence[tuple[float, int, list[int], list[float]]]]
"""See `Verdict.listed`."""


@dataclass(frozen=True)
class VerifyBatch:
    """The requests whose drafts are verified; row i of every field belongs to row i of the draft."""

    num_nodes: Sequence[int]
    """`[B]`: number of nodes of each row's draft."""
    num_tokens: Sequence[int]
    """`[B]`: number of committed tokens when the step began; also the absolute position of the first token to
    emit."""
    seeds: Sequence[int]
    """`[B]`: seed of each request's noise."""
    sample_indices: Sequence[int]
    """`[B]`: which of the request's `n` samples the row is."""
    sampling_params: Sequence[SamplingParams]
    """Of each request."""
    is_all_greedy: bool
    """Whether every row has temperature 0."""
    num_logprobs: Sequence[int] = ()
    """`[B]`: most probable tokens whose log probabilities each row lists beside its own; -1 for none. Or empty."""
    num_top_k: int = 0
    """Most probable ids of every row that the proposer needs; see `Verdict.top_k`."""


@dataclass(frozen=True)
class Verdict:
    """The result of verification, as ragged host rows: one entry per request."""

    accepted_nodes: Sequence[Sequence[int]]
    """`[B][num_accepted]`: the accepted path, as indices into the draft's row."""
    token_ids: Sequence[Sequence[int]]
    """`[B][num_accepted + 1]`: emitted tokens: the accepted path and the correction or bonus token."""
    is_sound: Sequence[bool] | None = None
    """`[R]`: `Scores.is_sound` of rows that tokens were drawn from, if it is read with these; None leaves it to the engine."""
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
    takes_any_rows: ClassVar[bool] = False
    """Whether `verify` finds the rows that are not numbers itself, for `Verdict.is_sound`; otherwise they are uniform."""

    def __init__(self, config: SamplerConfig) -> None:
        self.config = config

    def ahead(self, draft: CheckedDraft, batch: VerifyBatch, device: torch.device) -> Along | None:
        """Return what `verify` will read on a device of this draft and batch, to be sent with the pass; None for nothing."""
        return None

    def begin(self, scores: Scores, batch: VerifyBatch) -> Begun | None:
        """Begin to verify on a device without waiting for it; None where that is not possible, and then `verify` is called."""
        return None

    @abstractmethod
    def verify(self, scores: Scores, draft: CheckedDraft, batch: VerifyBatch) -> Verdict:
        """Decide which drafted nodes are accepted and sample one more token for every request."""
