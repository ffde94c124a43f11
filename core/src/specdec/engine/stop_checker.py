"""Decides where a sample ends, and how much of its text can be shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.interfaces.finish import FinishReason
from specdec.sampling_params import SamplingParams
from specdec.text.detokenizer import IncrementalDetokenizer
from specdec.text.stop_strings import stop_strings

if TYPE_CHECKING:
    from specdec.engine.sequence import Sequence


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
