"""The adapter's state of each vLLM request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from specdec import FinishReason, SamplingParams
from specdec_vllm.params import noise_seed, params_of


@dataclass
class Request:
    """One request, starting with the first step in which vLLM runs it."""

    theirs: Any
    """vLLM's sampling parameters."""
    params: SamplingParams
    """The parameters that the proposer gets."""
    seed: int
    """Seed of specdec's noise, which is used to choose tokens unless `has_vllm_noise`."""
    num_prompt_tokens: int
    has_vllm_noise: bool
    """Whether tokens are drawn with the request's own vLLM generator."""
    emitted: list[int] = field(default_factory=list)
    """Tokens that the proposer was told of, after those it was started with; kept for vLLM's V2 model runner."""
    last_token: int = 0
    """The last of them, or of those it was started with."""
    ended: FinishReason | None = None
    """Set once a token has ended the request; vLLM removes it before the next step."""

    @property
    def has_grammar(self) -> bool:
        """Whether vLLM constrains its text by a grammar and truncates drafts accordingly."""
        return self.theirs.structured_outputs is not None

    def since(self, num_tokens: int, num_known: int) -> list[int]:
        """Return the tokens that follow the first `num_tokens`, of the `num_known` that the proposer was told of."""
        return self.emitted[len(self.emitted) - (num_known - num_tokens) :] if num_known > num_tokens else []

    def until_end(self, token_ids: list[int], num_tokens: int, max_model_len: int) -> list[int]:
        """Return the emitted tokens up to the one that ends the request, like vLLM's scheduler, and record the reason.

        Args:
            token_ids: tokens emitted in this step.
            num_tokens: number of tokens before these.
            max_model_len: vLLM's maximum model length.
        """
        theirs = self.theirs
        stops = set(theirs.stop_token_ids or ()) if theirs.ignore_eos else theirs.all_stop_token_ids
        limit = self.num_prompt_tokens + (theirs.max_tokens or max_model_len)
        for index, token in enumerate(token_ids):
            length = num_tokens + index + 1
            if token in stops and length - self.num_prompt_tokens > theirs.min_tokens:
                self.ended = FinishReason.STOP
            elif length >= min(limit, max_model_len):
                self.ended = FinishReason.LENGTH
            if self.ended is not None:
                return token_ids[: index + 1]
        return token_ids

    @property
    def reason(self) -> FinishReason:
        """The finish reason as far as a worker knows it; stop strings are found elsewhere and look like an abort here."""
        if self.ended is not None:
            return self.ended
        return FinishReason.STOP if self.theirs.stop else FinishReason.ABORT


class Requests:
    """The requests that are running or preempted.

    Args:
        engine_seed: vLLM's seed; together with the request id it seeds requests without a seed, the same on every rank.
        vllm_noise: the requests whose tokens are drawn with vLLM's noise: under `strict` those with a seed, so that the same
            seed gives the same text as vLLM without speculation.
    """

    def __init__(self, engine_seed: int | None, vllm_noise: Literal["seeded", "all", "none"]) -> None:
        self._engine_seed = engine_seed
        self._vllm_noise = vllm_noise
        self.held: dict[str, Request] = {}
        """By request id."""

    def of(self, request_id: str, state: Any) -> Request:
        """Return a request; created from vLLM's state on first use."""
        found = self.held.get(request_id)
        if found is None:
            found = self.start(request_id, state.sampling_params, state.num_prompt_tokens)
        return found

    def start(self, request_id: str, theirs: Any, num_prompt_tokens: int) -> Request:
        """Return a new request, in place of one with this id.

        Args:
            request_id: vLLM's id.
            theirs: vLLM's sampling parameters.
            num_prompt_tokens: length of the prompt.
        """
        is_seeded = theirs.seed is not None
        has_vllm_noise = self._vllm_noise == "all" or (self._vllm_noise == "seeded" and is_seeded)
        own = noise_seed(self._engine_seed, request_id) if not is_seeded else theirs.seed
        params = params_of(theirs, is_noise_known=not has_vllm_noise)
        started = Request(theirs, params, own, num_prompt_tokens, has_vllm_noise)
        self.held[request_id] = started
        return started

    def take(self, request_ids: Iterable[str]) -> dict[str, FinishReason]:
        """Remove finished requests; return their finish reasons."""
        gone = {name: self.held.pop(name) for name in list(request_ids) if name in self.held}
        return {name: request.reason for name, request in gone.items()}
