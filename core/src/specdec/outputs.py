"""Return types of `generate` and of streams."""

from __future__ import annotations

from dataclasses import dataclass, field

from specdec.field_docs import show_fields


@dataclass(frozen=True)
class Logprob:
    """Log probability of one token at one position."""

    logprob: float
    rank: int
    """1 for the most probable token."""
    decoded_token: str | None = None
    """The text that the token adds after those before it: empty for one that ends inside a character, and the whole
    character for the one that completes it. The name of a special token that is left out. None without a tokenizer."""
    token_bytes: bytes | None = None
    """The token's own UTF-8 bytes; those of all tokens join to the text. Empty for a special token that is left out. None
    without a tokenizer."""


@dataclass(frozen=True)
class DraftStep:
    """The drafted and the accepted tokens of one step of a sample."""

    proposer: str | None
    """Name of the proposer; None if nothing was drafted."""
    token_ids: list[int]
    """The N drafted tokens; empty if nothing was drafted."""
    parents: list[int]
    """`[N]`: index of each drafted token's parent, -1 for the last committed token; -1, 0, 1, ... for a
    chain."""
    accepted: list[int]
    """Indices of the accepted drafted tokens, from depth 1 on."""
    num_emitted: int
    """Number of tokens added to the sample: the accepted ones and, unless it ended, the correction or bonus
    token."""
    time: float
    """Seconds from the request's arrival to the end of the step."""


@dataclass(frozen=True)
class CompletionOutput:
    """One sample of a request."""

    index: int
    text: str
    """Text so far; never runs past a stop string."""
    token_ids: list[int]
    finish_reason: str | None = None
    """`stop`, `length`, `abort`, `error`, or None while it runs."""
    stop_reason: int | str | None = None
    """The stop token id or stop string that ended it; None for an end-of-text token. With `error`, the
    reason."""
    logprobs: list[dict[int, Logprob]] | None = None
    """For each token, a mapping by id: the token itself first, then the most probable ones. They are from the
    target's own distribution, before any sampling parameter. None unless requested."""
    cumulative_logprob: float | None = None
    """Sum over the tokens; None unless `logprobs` is requested."""
    is_from_draft: list[bool] = field(default_factory=list, repr=False)
    """For each token, whether it is an accepted drafted token."""
    draft_steps: list[DraftStep] | None = field(default=None, repr=False)
    """The steps that produced the tokens, in order. None unless `return_draft_steps` is set."""
    num_reasoning_tokens: int | None = None
    """Tokens of reasoning, without its markers; None without `reasoning_config`."""
    is_refused: bool = False
    """With `error`: whether the request's own parameters are the reason, such as a grammar that needs too much work."""


@dataclass(frozen=True)
class RequestMetrics:
    """Statistics of one request, over all its samples. Times are in seconds."""

    num_drafts: int
    """Number of steps in which a draft was verified."""
    num_draft_tokens: int
    num_accepted_tokens: int
    """Accepted drafted tokens; correction and bonus tokens are not counted."""
    accepted_per_position: list[int]
    time_to_first_token: float | None
    total_time: float
    queue_time: float | None = None
    """Time until the first sample started to run."""
    num_accepted_prediction_tokens: int = 0
    """Tokens drafted from `SamplingParams.prediction` and accepted."""
    num_rejected_prediction_tokens: int = 0
    """Tokens drafted from the prediction and not accepted."""
    tokens_without_drafts: dict[str, int] = field(default_factory=dict)
    """Output tokens that came while no proposer could draft for the request, by the reason: it has no room, its state is gone,
    it is paused after failures, or drafts do not pay."""
    num_steps: int = 0
    """Steps that added tokens, with a draft or without, over all samples."""
    num_output_tokens: int = 0
    """Tokens that they added."""

    @property
    def mean_acceptance_length(self) -> float:
        """`1 + num_accepted_tokens / num_drafts`, vLLM's formula; 1.0 without drafts.

        It counts a bonus token for every draft, also where the text ended before it, and no step without a draft:
        `tokens_per_step` is what steps gave.
        """
        return 1.0 + self.num_accepted_tokens / self.num_drafts if self.num_drafts else 1.0

    @property
    def tokens_per_step(self) -> float:
        """`num_output_tokens / num_steps`; 0.0 without steps."""
        return self.num_output_tokens / self.num_steps if self.num_steps else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Accepted over drafted tokens; 0.0 without drafts."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else 0.0


@dataclass(frozen=True)
class RequestOutput:
    """A request and its output so far."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    metrics: RequestMetrics
    num_cached_tokens: int = 0
    """Number of prompt tokens found in the prefix cache."""
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    """For each prompt token, as `CompletionOutput.logprobs`; None for the first one. None unless
    requested."""


show_fields(Logprob, DraftStep, CompletionOutput, RequestMetrics, RequestOutput)
