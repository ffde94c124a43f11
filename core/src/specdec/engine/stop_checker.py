"""Decides where a sample ends, and how much of its text can be shown."""

from __future__ import annotations

from specdec.engine.detokenizer import IncrementalDetokenizer
from specdec.engine.sequence import Sequence
from specdec.engine.stop_strings import stop_strings
from specdec.interfaces.finish import FinishReason


class StopChecker:
    """Follows one sample's tokens and text to its end.

    Args:
        sequence: the sample.
        end_of_text_ids: the model's end-of-text ids.
        text: its text stream; None without a tokenizer.
    """

    def __init__(
        self, sequence: Sequence, end_of_text_ids: tuple[int, ...], text: IncrementalDetokenizer | None
    ) -> None:
        params = sequence.params
        self._sequence = sequence
        self._ends = frozenset() if params.is_endless else frozenset(end_of_text_ids)
        self._stop_ids = frozenset(params.stop_token_ids or ())
        self._stops = stop_strings(params.stop_strings) if params.stop_strings else None
        self._state = 0
        self._includes_stop = params.include_stop_str_in_output
        self._min_tokens = params.min_tokens
        self._stream = text
        self._num_read = 0
        self.text = ""

    @property
    def visible_text(self) -> str:
        """The text that can be shown so far: a possible beginning of a stop string is held back."""
        if self._stops is None or self._sequence.is_finished:
            return self.text
        return self.text[: len(self.text) - self._stops.num_held_back(self._state)]

    def accept(self, token_ids: list[int]) -> list[int]:
        """Return the tokens that belong to the sample, and mark it finished if it ends within them."""
        sequence = self._sequence
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
            if self._stops is not None and self._meets_stop(token_id, sequence.num_output_tokens + len(kept)):
                break
        if sequence.finish_reason is None and len(kept) == room:
            sequence.finish_reason = FinishReason.LENGTH
        return kept

    def read(self) -> None:
        """Bring the text up to date with the committed tokens; with stop strings, `accept` has done it."""
        if self._stream is None or self._stops is not None:
            return
        output = self._sequence.output_token_ids
        is_stopped = self._sequence.finish_reason is FinishReason.STOP and not self._includes_stop
        end = len(output) - 1 if is_stopped else len(output)
        self.text += "".join(self._stream.push(token_id) for token_id in output[self._num_read : end])
        self._num_read = max(self._num_read, end)

    def _meets_stop(self, token_id: int, num_output_tokens: int) -> bool:
        if self._stream is None or self._stops is None:
            return False
        added, length = self._stream.push(token_id), len(self.text)
        self.text += added
        if num_output_tokens <= self._min_tokens:  # a stop string begins after these tokens
            return False
        self._state, found = self._stops.scan(self._state, added)
        if found is None:
            return False
        at, stop = length + found[0], found[1]
        self.text = self.text[: at + len(stop) if self._includes_stop else at]
        self._sequence.finish_reason = FinishReason.STOP
        self._sequence.stop_reason = stop
        return True
