"""What the adapter keeps of each request of vLLM."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from specdec import FinishReason, SamplingParams
from specdec_vllm.params import noise_seed, params_of


@dataclass
class Request:
    """One request, from the first step that vLLM runs it in."""

    theirs: Any
    """vLLM's sampling parameters."""
    params: SamplingParams
    """What the proposer is told of them."""
    seed: int
    """Of specdec's noise, which tokens are chosen with unless `has_vllm_noise`."""
    num_prompt_tokens: int
    has_vllm_noise: bool
    """Whether tokens are drawn from a generator of vLLM's that belongs to the request."""
    ended: FinishReason | None = None
    """Set once a token has ended the request; vLLM takes it out before the next step."""

    @property
    def has_grammar(self) -> bool:
        """Whether vLLM holds its text to a grammar, and cuts drafts by it."""
        return self.theirs.structured_outputs is not None

    def until_end(self, token_ids: list[int], num_tokens: int, max_model_len: int) -> list[int]:
        """Return the emitted tokens up to the one that ends the request, as vLLM's scheduler will, and note why it ends.

        Args:
            token_ids: emitted in this step.
            num_tokens: tokens before these.
            max_model_len: vLLM's.
        """
        theirs = self.theirs
        stops = set(theirs.stop_token_ids or ()) if theirs.ignore_eos else theirs.all_stop_token_ids
        limit = self.num_prompt_tokens + (theirs.max_tokens or max_model_len)
        for place, token in enumerate(token_ids):
            length = num_tokens + place + 1
            if token in stops and length - self.num_prompt_tokens > theirs.min_tokens:
                self.ended = FinishReason.STOP
            elif length >= min(limit, max_model_len):
                self.ended = FinishReason.LENGTH
            if self.ended is not None:
                return token_ids[: place + 1]
        return token_ids

    @property
    def reason(self) -> FinishReason:
        """Why it ended, as far as a worker can know: stop strings are found elsewhere, and look like an abort from here."""
        if self.ended is not None:
            return self.ended
        return FinishReason.STOP if self.theirs.stop else FinishReason.ABORT


class Requests:
    """The requests that run or wait to be resumed.

    Args:
        engine_seed: vLLM's seed; with a request's id it gives the noise of requests without a seed, on every rank the same.
        vllm_noise: which requests draw their tokens with noise of vLLM's: those with a seed under `strict`, so that the same
            seed gives the text that vLLM gives without speculation.
    """

    def __init__(self, engine_seed: int | None, vllm_noise: Literal["seeded", "all", "none"]) -> None:
        self._engine_seed = engine_seed
        self._vllm_noise = vllm_noise
        self._held: dict[str, Request] = {}

    def of(self, request_id: str, state: Any) -> Request:
        """Return a request; made from vLLM's state of it when it is first asked for."""
        found = self._held.get(request_id)
        if found is None:
            theirs = state.sampling_params
            is_seeded = theirs.seed is not None
            has_vllm_noise = self._vllm_noise == "all" or (self._vllm_noise == "seeded" and is_seeded)
            own = noise_seed(self._engine_seed, request_id) if not is_seeded else theirs.seed
            params = params_of(theirs, is_noise_known=not has_vllm_noise)
            found = Request(theirs, params, own, state.num_prompt_tokens, has_vllm_noise)
            self._held[request_id] = found
        return found

    def find(self, request_id: str) -> Request | None:
        """Return a request that was asked for before, or None."""
        return self._held.get(request_id)

    def take(self, request_ids: Iterable[str]) -> dict[str, FinishReason]:
        """Forget requests that have left; returns why they did."""
        gone = {name: self._held.pop(name) for name in list(request_ids) if name in self._held}
        return {name: request.reason for name, request in gone.items()}
