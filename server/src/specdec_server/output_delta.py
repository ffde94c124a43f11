"""The new part of a sample since it was last read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from specdec import CompletionOutput, DraftStep, Logprob

Entry = dict[int, Logprob]


@dataclass(frozen=True)
class OutputDelta:
    """A part of a sample; the whole sample if nothing was read before."""

    text: str
    token_ids: Sequence[int]
    logprobs: Sequence[Entry] | None
    finish_reason: str | None
    stop_reason: int | str | None
    draft_steps: Sequence[DraftStep] | None = None
    """The steps that generated the tokens; None unless requested."""

    def joined(self, later: OutputDelta) -> OutputDelta:
        """Return this piece and the next one as one."""
        return replace(
            later,
            text=self.text + later.text,
            token_ids=[*self.token_ids, *later.token_ids],
            logprobs=None if later.logprobs is None else [*(self.logprobs or ()), *later.logprobs],
            draft_steps=None
            if later.draft_steps is None
            else [*(self.draft_steps or ()), *later.draft_steps],
        )


class Growth:
    """Tracks how much of a sample has been read.

    Args:
        is_withheld: whether to return only the end of the sample.
    """

    def __init__(self, *, is_withheld: bool = False) -> None:
        self._num_chars = self._num_tokens = self._num_steps = 0
        self._is_withheld = is_withheld
        self._is_over = False

    def take(self, sample: CompletionOutput) -> OutputDelta | None:
        """Return the new part; None if there is nothing to show yet, such as only half a character."""
        if self._is_over:
            return None
        if self._is_withheld:
            self._is_over = sample.finish_reason is not None
            return OutputDelta("", [], None, "length", None) if self._is_over else None
        text = sample.text[self._num_chars :]
        tokens = sample.token_ids[self._num_tokens :]
        if not text and sample.finish_reason is None and (sample.logprobs is None or not tokens):
            return None
        logprobs = None if sample.logprobs is None else sample.logprobs[self._num_tokens :]
        steps = None if sample.draft_steps is None else sample.draft_steps[self._num_steps :]
        self._num_chars, self._num_tokens = len(sample.text), len(sample.token_ids)
        self._num_steps += len(steps or ())
        self._is_over = sample.finish_reason is not None
        return OutputDelta(text, tokens, logprobs, sample.finish_reason, sample.stop_reason, steps)
