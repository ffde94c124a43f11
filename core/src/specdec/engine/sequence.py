"""One sample of one request, while it runs, and what decides where it ends."""

from __future__ import annotations

import time

import numpy as np
import torch

from specdec.adaptive.expected_tokens import ExpectedTokens
from specdec.adaptive.request_acceptance import RequestAcceptance
from specdec.engine.metrics import DraftCounts
from specdec.engine.speculation.plugin_view import PluginView, separate
from specdec.interfaces.adapter import Adapter
from specdec.interfaces.batch import TokenIds
from specdec.interfaces.finish import FinishReason
from specdec.interfaces.left_out import LeftOut
from specdec.logits.logprobs import LogprobRecord
from specdec.logits.rules.request_rules import RequestRules
from specdec.outputs import DraftStep
from specdec.sampling_params import SamplingParams
from specdec.text.detokenizer import IncrementalDetokenizer
from specdec.text.reasoning import Reasoning
from specdec.text.stop_strings import stop_strings


class Sequence:
    """All state of one running sample: tokens, slots in the KV cache, tokens delivered to the proposer.

    Args:
        request_id: id of this sample, made from the caller's id.
        prompt_token_ids: the prompt.
        params: sampling parameters.
        seed: seed of the sample's noise.
        sample_index: which of the request's `n` samples this is.
    """

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: TokenIds,
        params: SamplingParams,
        *,
        seed: int,
        sample_index: int,
        max_num_tokens: int,
    ) -> None:
        self.request_id = request_id
        self.row_id = request_id
        """Its id for proposers; unlike `request_id` it is unique among rows."""
        self.params = params
        self.shown_params = separate(params)
        """The parameters for the proposer."""
        self.plugin_view: PluginView | None = None
        """The tokens and the grammar for the proposer; made by the first delivery."""
        self.parent_id = request_id
        """Id of the request it is a sample of."""
        self.client: str | None = None
        """Name of the client, for fair scheduling; None if unknown."""
        self.cache_salt = ""
        """Only requests with the same one share cached prefixes."""
        self.adapter: Adapter | None = None
        """What the target's passes add for it; None for the target as it is."""
        self.priority = 0
        """Lower runs first, under the scheduling policy `priority`."""
        self.seed = seed
        self.sample_index = sample_index
        self.num_prompt_tokens = self.num_tokens = len(prompt_token_ids)
        self.max_num_tokens = max_num_tokens
        """Number of committed tokens at which the sample ends, by `max_tokens` or the context window."""
        self._array = np.empty(max_num_tokens, np.int32)
        self._array[: self.num_tokens] = prompt_token_ids
        self._array.flags.writeable = False
        self.token_ids: TokenIds = self._array[: self.num_tokens]
        """All committed tokens, prompt included, as a read-only view; its base is read-only as well."""
        self.output_token_ids: list[int] = []
        """Committed tokens after the prompt."""
        self.num_computed = 0
        """Number of tokens whose keys and values are in the cache."""
        self.first_slot = -1
        """-1 while it has no place in the cache."""
        self.num_slots = 0
        """Number of slots that are reserved for it; 0 if that is not known."""
        self.line = -1
        """Its line of the request table; -1 while it has none."""
        self.num_in_line = 0
        """Number of tokens in that line, as far as the host knows: verdicts that it has not read add to them."""
        self.num_published = 0
        """Number of its blocks that are published for prefix caching."""
        self.num_cached_prompt_tokens = 0
        self.delivered = 0
        """Number of tokens delivered to the proposer."""
        self.deliverable_hidden: list[tuple[torch.Tensor, ...]] = []
        self.num_missing = 0
        """Length of a cached prefix that the proposer could have held but did not; delivered even while
        drafting is suspended."""
        self.is_introduced = False
        """Whether the proposer has received a row for it, or was asked to resume it, and no `finish` since."""
        self.has_proposals = True
        """Whether the proposer can be asked: False while states that it needs are gone."""
        self.left_out: LeftOut | None = None
        """Why nothing is drafted for it; None where something can be."""
        self.num_returns = self.returned_at = 0
        """How often everything was delivered to the proposer again after it had been left out, and its length then."""
        self.without_drafts: dict[str, int] = {}
        """Numbers of its tokens that were emitted while nothing could be drafted, by the reason."""
        self.depth_state: RequestAcceptance | None = None
        """How often its drafts were accepted, for `AdaptiveDepth`."""
        self.rules: RequestRules | None = None
        """Changes to its logits beyond temperature, top-k, top-p and min-p."""
        self.reasoning: Reasoning | None = None
        """Where its reasoning is, if the markers are known."""
        self.expected: ExpectedTokens | None = None
        """What is expected next without a proposer; None if nothing is."""
        self.logprobs: LogprobRecord | None = None
        self.prompt_logprobs: LogprobRecord | None = None
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None
        self.is_refused = False
        """With an error: whether the request's own parameters are the reason."""
        self.stop_checker: StopChecker
        """Where it ends, and its text; given by the intake, and not to samples that another engine runs."""
        self.last_num_drafted = self.last_num_accepted = self.last_draft_at = 0
        self.drafts = DraftCounts()
        self.num_steps = 0
        """Steps that added tokens."""
        self.draft_flags: list[bool] = []
        """For each output token whether it is an accepted drafted token."""
        self.draft_steps: list[DraftStep] | None = [] if params.return_draft_steps else None
        """The steps that produced its tokens, if requested."""
        self.arrival_time = time.perf_counter()
        self.admission_time: float | None = None
        """When it first left the queue."""
        self.first_token_time: float | None = None
        self.last_token_time = 0.0

    def missing_prompt_rows(self, chunk: int) -> range:
        """Return the positions among the next `chunk` tokens whose prompt log probabilities are missing."""
        if self.prompt_logprobs is None:
            return range(0)
        first = max(self.num_computed, len(self.prompt_logprobs.entries))
        return range(first, min(self.num_computed + chunk, self.num_prompt_tokens - 1))

    @property
    def num_with_states(self) -> int:
        """Number of tokens that are delivered, or whose hidden states are ready to be delivered."""
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
        """Commit tokens, the first `num_drafted` of them accepted drafted ones; there must be room."""
        self.num_steps += 1
        count = len(token_ids)
        end = self.num_tokens + count
        self._array.flags.writeable = True
        self._array[self.num_tokens : end] = token_ids
        self._array.flags.writeable = False
        self.output_token_ids += token_ids
        self.num_tokens, self.token_ids = end, self._array[:end]
        self.draft_flags += [True] * num_drafted + [False] * (count - num_drafted)


class StopChecker:
    """Follows one sample's tokens and text to its end.

    Args:
        params: the sample's parameters.
        end_of_text_ids: the model's end-of-text ids.
        text: its text stream; None without a tokenizer.
    """

    def __init__(
        self, params: SamplingParams, end_of_text_ids: tuple[int, ...], text: IncrementalDetokenizer | None
    ) -> None:
        self._ends = frozenset() if params.is_endless else frozenset(end_of_text_ids)
        self._stop_ids = frozenset(params.stop_token_ids or ())
        self._stops = stop_strings(params.stop_strings) if params.stop_strings else None
        self._state = 0
        self._includes_stop = params.include_stop_str_in_output
        self._min_tokens = params.min_tokens
        self._stream = text
        self._num_read = 0
        self.text = ""

    def visible_text(self, sequence: Sequence) -> str:
        """Return the text that can be shown so far: a possible beginning of a stop string is held back."""
        if self._stops is None or sequence.is_finished:
            return self.text
        return self.text[: len(self.text) - self._stops.num_held_back(self._state)]

    def accept(self, sequence: Sequence, token_ids: list[int]) -> list[int]:
        """Return the tokens that belong to the sample, and mark it finished if it ends within them."""
        room = sequence.max_num_tokens - sequence.num_tokens
        kept: list[int] = []
        for token_id in token_ids[:room]:
            kept.append(token_id)
            if token_id in self._ends or token_id in self._stop_ids:
                sequence.finish_reason = FinishReason.STOP
                sequence.stop_reason = None if token_id in self._ends else token_id
                if self._stops is not None and self._includes_stop and self._stream is not None:
                    self.text += self._stream.push(token_id)
                break
            if self._stops is not None:
                stop = self._stop_at(token_id, sequence.num_output_tokens + len(kept))
                if stop is not None:
                    sequence.finish_reason, sequence.stop_reason = FinishReason.STOP, stop
                    break
        if sequence.finish_reason is None and len(kept) == room:
            sequence.finish_reason = FinishReason.LENGTH
        return kept

    def read(self, sequence: Sequence) -> None:
        """Bring the text up to date with the committed tokens; with stop strings, `accept` has done it."""
        if self._stream is None or self._stops is not None:
            return
        output = sequence.output_token_ids
        is_stopped = sequence.finish_reason is FinishReason.STOP and not self._includes_stop
        end = len(output) - 1 if is_stopped else len(output)
        self.text += "".join(self._stream.push(token_id) for token_id in output[self._num_read : end])
        self._num_read = max(self._num_read, end)

    def _stop_at(self, token_id: int, num_output_tokens: int) -> str | None:
        """Add a token's text; returns the stop string that ends in it, where the text is cut, or None."""
        if self._stream is None or self._stops is None:
            return None
        added, length = self._stream.push(token_id), len(self.text)
        self.text += added
        if num_output_tokens <= self._min_tokens:  # a stop string begins after these tokens
            return None
        self._state, found = self._stops.scan(self._state, added)
        if found is None:
            return None
        at, stop = length + found[0], found[1]
        self.text = self.text[: at + len(stop) if self._includes_stop else at]
        return stop


def free_name(name: str, used: set[str]) -> str:
    """Return an unused row id: an ended request keeps its row until its last tokens are delivered."""
    free, number = name, 1
    while free in used:
        number += 1
        free = f"{name}~{number}"
    return free
