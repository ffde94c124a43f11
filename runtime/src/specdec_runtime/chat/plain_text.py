"""Treats special tokens spelled in messages as text: only the chat template may write real ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerBase

from specdec import ConfigError

_FIRST_MARK, _LAST_MARK = 0xF0000, 0x10FFFD
"""Code points for private use: no tokenizer knows them."""


class PlainText:
    """Replaces special tokens in client messages by marks, and tokenizes the template's output.

    Args:
        tokenizer: the target's tokenizer.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        found = [
            (token_id, token.content)
            for token_id, token in tokenizer.added_tokens_decoder.items()
            if token.special
        ]
        self._tokens = tuple(sorted(found, key=lambda token: len(token[1]), reverse=True))
        self._order = {content: place for place, (_, content) in enumerate(self._tokens)}
        self._special = re.compile("|".join(map(re.escape, self._order))) if found else None

    def is_spelled_in(self, *values: Any) -> bool:
        """Return whether a special token is spelled anywhere in the texts of these values."""
        if self._special is None:
            return False
        return any(self._special.search(text) for value in values for text in texts(value))

    def first_mark(self, *values: Any) -> int:
        """Return the first of as many code points as are needed that occur in none of these values."""
        used = {ord(char) for value in values for text in texts(value) for char in set(text)}
        first = _FIRST_MARK
        while clashes := [point for point in used if first <= point < first + 2 * len(self._order)]:
            first = max(clashes) + 1
        if first + 2 * len(self._order) > _LAST_MARK:
            raise ConfigError(
                "messages: special tokens are spelled beside too many characters for private use; leave either out"
            )
        return first

    def marked(self, value: Any, first: int) -> Any:
        """Return a value with marks in place of the special tokens in its texts."""
        if isinstance(value, str) and self._special is not None:
            return self._special.sub(lambda found: chr(first + self._order[found[0]]), value)
        if isinstance(value, Mapping):
            return {self.marked(key, first): self.marked(item, first) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.marked(item, first) for item in value]
        return value

    def unmarked(self, text: str, first: int) -> str:
        """Return a text with special tokens in place of their marks."""
        return text.translate({first + place: content for content, place in self._order.items()})

    def token_ids(self, text: str, first: int) -> list[int]:
        """Return the ids of a text with marks: special tokens written by the template, plain text for marks.

        Raises:
            ConfigError: if the tokenizer cannot encode special tokens as text.
        """
        assert self._special is not None
        shift = first + len(self._order)
        backend, real_ids = _plain(self._tokenizer, self._tokens, shift)
        text = self._special.sub(lambda found: chr(shift + self._order[found[0]]), text)
        ids = backend.encode_batch([self.unmarked(text, first)], add_special_tokens=False)[0].ids
        return [real_ids.get(token_id, token_id) for token_id in ids]


@lru_cache(4)
def _plain(
    tokenizer: PreTrainedTokenizerBase, tokens: tuple[tuple[int, str], ...], shift: int
) -> tuple[Tokenizer, dict[int, int]]:
    """Return a tokenizer that treats special tokens as text, and the real id for each of its mark ids.

    Args:
        tokenizer: the target's tokenizer.
        tokens: the special tokens, each with its id.
        shift: code point of the first mark; each stands for the special token at its index.
    """
    given = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(given, Tokenizer):
        raise ConfigError(
            "messages: they spell out a special token, which this tokenizer cannot encode as plain text: leave it out"
        )
    plain = Tokenizer.from_str(given.to_str())
    real_ids: dict[int, int] = {}
    plain.encode_special_tokens = True
    for place, (token_id, _) in enumerate(tokens):
        mark, token = chr(shift + place), tokenizer.added_tokens_decoder[token_id]
        plain.add_tokens(
            [AddedToken(mark, special=False, normalized=False, lstrip=token.lstrip, rstrip=token.rstrip)]
        )
        known_as = plain.token_to_id(mark)
        assert known_as is not None
        real_ids[known_as] = token_id
    return plain, real_ids


def texts(value: Any) -> Iterator[str]:
    """Yield all texts in a value, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from texts(key)
            yield from texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts(item)
