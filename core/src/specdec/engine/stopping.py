"""Decides where a sample ends, and how much of its text can be shown."""

from __future__ import annotations

from specdec.engine.sequence import Sequence
from specdec.engine.text import TextStream
from specdec.interfaces.finish import FinishReason


class StopWatch:
    """Follows one sample's tokens and text to its end.

    Args:
        sequence: the sample.
        end_of_text_ids: the model's end-of-text ids.
        text: its text stream; None without a tokenizer.
    """

    def __init__(self, sequence: Sequence, end_of_text_ids: tuple[int, ...], text: TextStream | None) -> None:
        params = sequence.params
        self._sequence = sequence
        self._ends = frozenset() if params.is_endless else frozenset(end_of_text_ids)
        self._stop_ids = frozenset(params.stop_token_ids or ())
        self._stops = params.stop_strings
        self._longest = max(map(len, self._stops), default=0)
        self._includes_stop = params.include_stop_str_in_output
        self._min_tokens = params.min_tokens
        self._stream = text
        self._num_read = 0
        self._first_stop = 0
        self.text = ""

    @property
    def visible_text(self) -> str:
        """The text that can be shown so far: a possible beginning of a stop string is held back."""
        if not self._stops or self._sequence.is_finished:
            return self.text
        return self.text[: len(self.text) - self._held_back()]

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
                if self._stops and self._includes_stop and self._stream is not None:
                    self.text += self._stream.push(token_id)
                break
            if self._stops and self._meets_stop(token_id, sequence.num_output_tokens + len(kept)):
                break
        if sequence.finish_reason is None and len(kept) == room:
            sequence.finish_reason = FinishReason.LENGTH
        return kept

    def read(self) -> None:
        """Bring the text up to date with the committed tokens; with stop strings, `accept` has done it."""
        if self._stream is None or self._stops:
            return
        output = self._sequence.output_token_ids
        is_stopped = self._sequence.finish_reason is FinishReason.STOP and not self._includes_stop
        end = len(output) - 1 if is_stopped else len(output)
        self.text += "".join(self._stream.push(token_id) for token_id in output[self._num_read : end])
        self._num_read = max(self._num_read, end)

    def _meets_stop(self, token_id: int, num_output_tokens: int) -> bool:
        if self._stream is None:
            return False
        start = max(self._first_stop, len(self.text) - self._longest + 1, 0)
        self.text += self._stream.push(token_id)
        if num_output_tokens <= self._min_tokens:
            self._first_stop = len(self.text)
            return False
        found = [(at, stop) for stop in self._stops if (at := self.text.find(stop, start)) >= 0]
        if not found:
            return False
        at, stop = min(found)
        self.text = self.text[: at + len(stop) if self._includes_stop else at]
        self._sequence.finish_reason = FinishReason.STOP
        self._sequence.stop_reason = stop
        return True

    def _held_back(self) -> int:
        """Return the length of the longest tail of the text that begins a stop string."""
        for length in range(min(self._longest - 1, len(self.text)), 0, -1):
            tail = self.text[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
