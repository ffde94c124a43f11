"""The field `draft_steps` of a choice: drafted and accepted tokens of each step, with their text."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedTokenizerBase

from specdec import DraftStep
from specdec.text import IncrementalDetokenizer
from specdec_server.output_delta import OutputDelta


class DraftSteps:
    """Reports the steps of one sample, piece by piece.

    Args:
        tokenizer: the target's; None if tokens cannot be decoded.
        prompt_token_ids: the prompt.
        skip_special_tokens: whether special tokens are omitted from the text.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase | None,
        prompt_token_ids: list[int],
        *,
        skip_special_tokens: bool,
    ) -> None:
        self._tokenizer = tokenizer
        self._last = prompt_token_ids[-1:]
        self._stream = None
        if tokenizer is not None:
            self._stream = IncrementalDetokenizer(
                tokenizer, prompt_token_ids, skip_special_tokens=skip_special_tokens
            )

    def to_json(self, delta: OutputDelta) -> list[dict[str, Any]]:
        """Return the steps of a piece.

        Each has `proposer`, `draft_token_ids`, `draft_tokens` and `parents` `[N]`, `accepted` (indices of accepted nodes),
        `token_ids` and `tokens` (emitted by the step), and `time` (seconds from the request's arrival to the step's end).
        """
        found, place = [], 0
        for step in delta.draft_steps or ():
            emitted = list(delta.token_ids[place : place + step.num_emitted])
            place += step.num_emitted
            found.append(
                {
                    "proposer": step.proposer,
                    "draft_token_ids": step.token_ids,
                    "draft_tokens": self._drafted(step),
                    "parents": step.parents,
                    "accepted": step.accepted,
                    "token_ids": emitted,
                    "time": round(step.time, 6),
                    "tokens": ["" if self._stream is None else self._stream.push(i) for i in emitted],
                }
            )
            self._last = emitted[-1:] or self._last
        return found

    def _drafted(self, step: DraftStep) -> list[str]:
        """Return the text that each drafted token adds after its parent."""
        before = [
            step.token_ids[parent : parent + 1] if parent >= 0 else self._last for parent in step.parents
        ]
        return [self._spelled(ids, token) for ids, token in zip(before, step.token_ids, strict=True)]

    def _spelled(self, before: list[int], token_id: int) -> str:
        if self._tokenizer is None:
            return ""
        start, both = self._tokenizer.decode(before), self._tokenizer.decode([*before, token_id])
        assert isinstance(start, str)
        assert isinstance(both, str)
        # If the token completes a character, the beginning changes; the token is then decoded alone.
        return both[len(start) :] if both.startswith(start) else str(self._tokenizer.decode([token_id]))
