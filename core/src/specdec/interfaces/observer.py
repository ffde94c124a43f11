"""The statistics that observers receive for each step and each request."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.interfaces.finish import FinishReason


@dataclass(frozen=True)
class StepStats:
    """One step of the verify loop. Times are in milliseconds."""

    num_requests: int
    num_prompt_tokens: int
    """Prompt tokens run in this step."""
    num_drafts: int
    """Number of requests that had a draft verified."""
    num_draft_tokens: int
    num_accepted_tokens: int
    num_emitted_tokens: int
    schedule_ms: float
    propose_ms: float
    score_ms: float
    verify_ms: float
    commit_ms: float


@dataclass(frozen=True)
class RequestStats:
    """One finished request."""

    request_id: str
    num_prompt_tokens: int
    num_output_tokens: int
    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens: int
    time_to_first_token_ms: float
    total_ms: float
    finish_reason: FinishReason
