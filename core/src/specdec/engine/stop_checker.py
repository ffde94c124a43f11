"""Decides where a sample ends, and how much of its text can be shown."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from specdec.engine.detokenizer import IncrementalDetokenizer
from specdec.interfaces.finish import FinishReason
from specdec.sampling_params import SamplingParams

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


class StopStrings:
    """An automaton of Aho and Corasick (1975): each character takes the same time, however many stop strings there are.

    Args:
        stops: the stop strings, none empty.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._next: dict[tuple[int, str], int] = {}
        self._depths = [0]
        self._found: list[str | None] = [None]
        """For each state the longest stop string that ends there."""
        self._fallbacks = [0]
        """For each state that of its longest tail which begins a stop string."""
        children: list[dict[str, int]] = [{}]
        for stop in stops:
            state = 0
            for char in stop:
                if char not in children[state]:
                    self._next[state, char] = children[state][char] = len(children)
                    self._depths.append(self._depths[state] + 1)
                    self._found.append(None)
                    self._fallbacks.append(0)
                    children.append({})
                state = children[state][char]
            self._found[state] = stop
        level = list(children[0].values())
        while level:
            for state in level:
                for char, child in children[state].items():
                    self._fallbacks[child] = tail = self._step(self._fallbacks[state], char)
                    self._found[child] = self._found[child] or self._found[tail]
            level = [child for state in level for child in children[state].values()]

    def scan(self, state: int, text: str) -> tuple[int, tuple[int, str] | None]:
        """Read more text.

        Args:
            state: what was returned for the text before; 0 at the start.
            text: what follows.

        Returns:
            The state after the text, and the stop string that begins first among those that end within the text: its start,
            counted from that of `text`, and the string. Of two with the same start it is the shorter one.
        """
        first: tuple[int, str] | None = None
        for end, char in enumerate(text, 1):
            state = self._step(state, char)
            stop = self._found[state]
            if stop is not None and (first is None or end - len(stop) < first[0]):
                first = (end - len(stop), stop)
        return state, first

    def num_held_back(self, state: int) -> int:
        """Return the length of the longest tail of the text read that begins a stop string."""
        return self._depths[state]

    def _step(self, state: int, char: str) -> int:
        while (state, char) not in self._next:
            if not state:
                return 0
            state = self._fallbacks[state]
        return self._next[state, char]


@lru_cache(16)
def stop_strings(stops: tuple[str, ...]) -> StopStrings:
    """Return the automaton of stop strings; the samples of a request share it."""
    return StopStrings(stops)
