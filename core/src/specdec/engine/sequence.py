"""One sample of one request, while it runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import torch

from specdec.interfaces.batch import HostIds
from specdec.interfaces.finish import FinishReason
from specdec.logits.logprobs import LogprobRecord
from specdec.logits.rules import RequestRules
from specdec.outputs import DraftStep
from specdec.sampling_params import SamplingParams

if TYPE_CHECKING:
    from specdec.engine.pace.request_acceptance import RequestAcceptance


class Sequence:
    """All state of one running sample: its tokens, its slots in the KV cache, what its proposer has been told.

    Args:
        request_id: id of this sample, made from the caller's id.
        prompt_token_ids: the prompt.
        params: sampling parameters.
        seed: seed of the sample's noise.
        sample_index: which of the request's `n` samples this is.
    """

    __slots__ = (
        "_array",
        "acceptance",
        "accepted_per_position",
        "admission_time",
        "arrival_time",
        "client",
        "deliverable_hidden",
        "delivered",
        "draft_flags",
        "draft_steps",
        "finish_reason",
        "first_slot",
        "first_token_time",
        "has_proposals",
        "is_introduced",
        "last_num_accepted",
        "last_num_drafted",
        "last_token_time",
        "logprobs",
        "max_num_tokens",
        "num_accepted_tokens",
        "num_blocks",
        "num_cached_prompt_tokens",
        "num_computed",
        "num_draft_tokens",
        "num_drafts",
        "num_missing",
        "num_prompt_tokens",
        "num_published",
        "num_tokens",
        "params",
        "parent_id",
        "prefix_key",
        "priority",
        "prompt_logprobs",
        "request_id",
        "row_id",
        "rules",
        "sample_index",
        "seed",
        "stop_reason",
    )

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: HostIds,
        params: SamplingParams,
        *,
        seed: int,
        sample_index: int,
        max_num_tokens: int,
    ) -> None:
        self.request_id = request_id
        self.row_id = request_id
        """What proposers know it by: unlike `request_id` no other row has it."""
        self.params = params
        self.parent_id = request_id
        """Id of the request it is a sample of."""
        self.client: str | None = None
        """Who asked, for a fair order; None where that is not known."""
        self.priority = 0
        """Lower goes first, where the scheduling policy is by priority."""
        self.seed = seed
        self.sample_index = sample_index
        self.num_prompt_tokens = self.num_tokens = len(prompt_token_ids)
        self.max_num_tokens = max_num_tokens
        """Committed tokens at which the sample ends: by `max_tokens` or by the context window."""
        self._array = np.empty(max_num_tokens, np.int32)
        self._array[: self.num_tokens] = prompt_token_ids
        self._array.flags.writeable = False
        self.num_computed = 0
        """Tokens whose keys and values are in the cache."""
        self.first_slot = -1
        self.num_blocks = 0
        self.num_published = 0
        self.prefix_key = 0
        self.num_cached_prompt_tokens = 0
        self.delivered = 0
        """Tokens the proposer has been given."""
        self.deliverable_hidden: list[tuple[torch.Tensor, ...]] = []
        self.num_missing = 0
        """Length of a cached prefix that the proposer could have held and did not: it is told it even while it rests."""
        self.is_introduced = False
        """Whether the proposer has had a row for it and has not been told to drop it."""
        self.has_proposals = True
        self.acceptance: RequestAcceptance | None = None
        """How its drafting goes, kept by `Pace`."""
        self.rules: RequestRules | None = None
        """What changes its logits beyond temperature and cuts."""
        self.logprobs: LogprobRecord | None = None
        self.prompt_logprobs: LogprobRecord | None = None
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None
        self.last_num_drafted = self.last_num_accepted = 0
        self.num_drafts = self.num_draft_tokens = self.num_accepted_tokens = 0
        self.accepted_per_position: list[int] = []
        self.draft_flags: list[bool] = []
        """One byte per output token: 1 where a draft had guessed it."""
        self.draft_steps: list[DraftStep] | None = [] if params.return_draft_steps else None
        """The steps that made its tokens, where they are asked for."""
        self.arrival_time = time.perf_counter()
        self.admission_time: float | None = None
        """When it first left the queue."""
        self.first_token_time: float | None = None
        self.last_token_time = 0.0

    @property
    def token_ids(self) -> HostIds:
        """All committed tokens, prompt included, as a read-only view; its base is read-only as well."""
        return self._array[: self.num_tokens]

    @property
    def output_token_ids(self) -> list[int]:
        """Committed tokens after the prompt."""
        ids: list[int] = self._array[self.num_prompt_tokens : self.num_tokens].tolist()
        return ids

    def missing_prompt_rows(self, chunk: int) -> range:
        """Return the positions of the next `chunk` tokens whose rows give log probabilities that are asked for and missing."""
        if self.prompt_logprobs is None:
            return range(0)
        first = max(self.num_computed, len(self.prompt_logprobs.entries))
        return range(first, min(self.num_computed + chunk, self.num_prompt_tokens - 1))

    @property
    def num_with_states(self) -> int:
        """Tokens that have been delivered, or whose hidden states are there to be delivered with them."""
        return self.delivered + sum(states[0].shape[0] for states in self.deliverable_hidden)

    @property
    def num_output_tokens(self) -> int:
        """Number of committed tokens after the prompt."""
        return self.num_tokens - self.num_prompt_tokens

    @property
    def is_finished(self) -> bool:
        """Whether the sample has ended."""
        return self.finish_reason is not None

    def append(self, token_ids: list[int], num_drafted: int) -> None:
        """Commit tokens, the first `num_drafted` of which a draft had guessed; there must be room for them."""
        count = len(token_ids)
        end = self.num_tokens + count
        self._array.flags.writeable = True
        self._array[self.num_tokens : end] = token_ids
        self._array.flags.writeable = False
        self.num_tokens = end
        self.draft_flags += [True] * num_drafted + [False] * (count - num_drafted)

    def count_draft(self, num_drafted: int, num_accepted: int) -> None:
        """Record one verified draft."""
        self.num_drafts += 1
        self.num_draft_tokens += num_drafted
        self.num_accepted_tokens += num_accepted
        count_accepted(self.accepted_per_position, num_drafted, num_accepted)


def count_accepted(positions: list[int], num_drafted: int, num_accepted: int) -> None:
    """Add one verified draft to how many drafted tokens were accepted at each position."""
    if num_drafted > len(positions):
        positions.extend([0] * (num_drafted - len(positions)))
    for position in range(num_accepted):
        positions[position] += 1
