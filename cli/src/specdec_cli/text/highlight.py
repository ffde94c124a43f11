"""Splits streamed text into pieces that are marked as drafted or not."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from specdec import CompletionOutput

GUESSED = "\x1b[32m"
PLAIN = "\x1b[0m"


@dataclass(frozen=True)
class TextSpan:
    """A piece of text, and whether all of its tokens come from accepted drafts."""

    text: str
    is_guessed: bool


class GrowingText:
    """Splits the outputs of a stream into pieces; joined they equal the output's text exactly.

    A character whose bytes are spread over several tokens belongs to the piece of the last one, which
    counts as guessed if all of these tokens were guessed.

    Args:
        tokenizer: the target's tokenizer.
        prompt_token_ids: the prompt.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, prompt_token_ids: list[int]) -> None:
        from specdec.text import IncrementalDetokenizer  # takes seconds, and help is shown without it

        self._stream = IncrementalDetokenizer(tokenizer, prompt_token_ids, skip_special_tokens=True)
        self._num_tokens = 0
        self._is_guessed = True
        self._held_back: list[TextSpan] = []
        self._num_shown = 0

    def update(self, output: CompletionOutput) -> Iterator[TextSpan]:
        """Yield the new pieces; text that may become part of a stop string is held back by the engine and here."""
        for index in range(self._num_tokens, len(output.token_ids)):
            self._is_guessed &= output.is_from_draft[index]
            text = self._stream.push(output.token_ids[index])
            if text:
                self._held_back.append(TextSpan(text, self._is_guessed))
                self._is_guessed = True
        self._num_tokens = len(output.token_ids)
        room = len(output.text) - self._num_shown
        while room > 0 and self._held_back:
            span = self._held_back.pop(0)
            if len(span.text) > room:
                self._held_back.insert(0, TextSpan(span.text[room:], span.is_guessed))
                span = TextSpan(span.text[:room], span.is_guessed)
            room -= len(span.text)
            self._num_shown += len(span.text)
            yield span


def paint(span: TextSpan, *, is_coloured: bool) -> str:
    """Return a piece with its terminal colours."""
    return f"{GUESSED}{span.text}{PLAIN}" if is_coloured and span.is_guessed else span.text


def supports_color() -> bool:
    """Return whether the standard output supports colours: a terminal does, unless `NO_COLOR` is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
