"""One request: its samples and their output."""

from __future__ import annotations

import time
from collections import Counter
from itertools import zip_longest

from specdec.engine.sequence import Sequence
from specdec.interfaces.finish import FinishReason
from specdec.outputs import CompletionOutput, Logprob, RequestMetrics, RequestOutput


class Request:
    """The `n` samples of one prompt.

    Args:
        request_id: the caller's id.
        prompt: the prompt's text, if it was given as text.
        sequences: of the samples.
        is_streaming: whether to output after every step, or only at the end.
    """

    def __init__(
        self,
        request_id: str,
        prompt: str | None,
        sequences: list[Sequence],
        *,
        is_streaming: bool,
    ) -> None:
        self.request_id = request_id
        self.is_streaming = is_streaming
        self._prompt = prompt
        self.sequences = sequences
        first = sequences[0]
        self._prompt_token_ids: list[int] = first.token_ids[: first.num_prompt_tokens].tolist()

    @property
    def is_waiting(self) -> bool:
        """Whether none of the samples has begun to run."""
        return all(sequence.admission_time is None for sequence in self.sequences)

    @property
    def is_finished(self) -> bool:
        """Whether all samples have ended."""
        return all(sequence.is_finished for sequence in self.sequences)

    def output(self) -> RequestOutput:
        """Return the current state of the request; its text is that which its stop checkers have read."""
        return RequestOutput(
            request_id=self.request_id,
            prompt=self._prompt,
            prompt_token_ids=self._prompt_token_ids,
            outputs=[_completion(sequence) for sequence in self.sequences],
            finished=self.is_finished,
            metrics=self._metrics(),
            num_cached_tokens=self.sequences[0].num_cached_prompt_tokens,
            prompt_logprobs=self._prompt_logprobs(),
        )

    def failed_output(self, reason: str) -> RequestOutput:
        """Return the last output of a request whose own cannot be built: its tokens and a reason."""
        samples = [
            CompletionOutput(s.sample_index, "", s.output_token_ids.copy(), FinishReason.ERROR.value, reason)
            for s in self.sequences
        ]
        total = time.perf_counter() - self.sequences[0].arrival_time
        metrics = RequestMetrics(0, 0, 0, [], None, total)
        return RequestOutput(self.request_id, self._prompt, self._prompt_token_ids, samples, True, metrics)

    def _prompt_logprobs(self) -> list[dict[int, Logprob] | None] | None:
        record = self.sequences[0].prompt_logprobs
        return None if record is None else [None, *record.entries]

    def _metrics(self) -> RequestMetrics:
        sequences = self.sequences
        drafts = [s.drafts for s in sequences]
        by_position = zip_longest(*(d.accepted_per_position for d in drafts), fillvalue=0)
        firsts = [s.first_token_time - s.arrival_time for s in sequences if s.first_token_time is not None]
        expected = [s.expected for s in sequences if s.expected is not None]
        admitted = [s.admission_time - s.arrival_time for s in sequences if s.admission_time is not None]
        return RequestMetrics(
            num_drafts=sum(d.num_drafts for d in drafts),
            num_draft_tokens=sum(d.num_draft_tokens for d in drafts),
            num_accepted_tokens=sum(d.num_accepted_tokens for d in drafts),
            accepted_per_position=list(map(sum, by_position)),
            time_to_first_token=min(firsts, default=None),
            total_time=time.perf_counter() - sequences[0].arrival_time,
            queue_time=min(admitted, default=None),
            num_accepted_prediction_tokens=sum(e.num_accepted_predicted for e in expected),
            num_rejected_prediction_tokens=sum(e.num_rejected_predicted for e in expected),
            tokens_without_drafts=dict(sum((Counter(s.without_drafts) for s in sequences), Counter[str]())),
            num_steps=sum(s.num_steps for s in sequences),
            num_output_tokens=sum(len(s.output_token_ids) for s in sequences),
        )


def _completion(sequence: Sequence) -> CompletionOutput:
    return CompletionOutput(
        index=sequence.sample_index,
        text=sequence.stop_checker.visible_text(sequence),
        token_ids=sequence.output_token_ids.copy(),
        finish_reason=None if sequence.finish_reason is None else sequence.finish_reason.value,
        stop_reason=sequence.stop_reason,
        logprobs=None if sequence.logprobs is None else list(sequence.logprobs.entries),
        cumulative_logprob=None if sequence.logprobs is None else sequence.logprobs.cumulative,
        is_from_draft=sequence.draft_flags.copy(),
        draft_steps=None if sequence.draft_steps is None else list(sequence.draft_steps),
        is_refused=sequence.is_refused,
        num_reasoning_tokens=None
        if sequence.reasoning is None
        else sequence.reasoning.count(sequence.output_token_ids),
    )
