"""Turns token ids into text as they arrive."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_CONTEXT = 6
_LONGEST = 16
"""The most tokens that are decoded again together with a new one."""
_REPLACED = "\ufffd"
_RAW_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")


class _Step(NamedTuple):
    """What one more token does to a stream."""

    ids: list[int]
    """The tokens that are decoded together, the new one last."""
    first: int
    """Index of the first token whose text is not returned yet."""
    text: str
    """Their text, without a last character that is incomplete."""
    added: str
    """The part of it that is new."""
    unfinished: bytes
    """Bytes of the incomplete character."""


class IncrementalDetokenizer:
    """Incremental detokenisation of one sample; a character whose bytes are incomplete is held back.

    The text is what the tokenizer makes of all tokens together. Where a token would change text that was returned already
    (with byte fallback, bytes that are not UTF-8 also spoil the characters right before them), the new tokens are decoded
    alone, as in vLLM.

    Args:
        tokenizer: the target's tokenizer.
        prompt_token_ids: the prompt, whose end decides how the first token is spelled; its own text is not returned.
        skip_special_tokens: whether special tokens are left out.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        prompt_token_ids: Sequence[int],
        *,
        skip_special_tokens: bool,
    ) -> None:
        self._tokenizer = tokenizer
        self._decoder: Any = getattr(tokenizer, "backend_tokenizer", None) or tokenizer
        self._skips = skip_special_tokens
        self._ids = self._end_of(prompt_token_ids)
        self._shown = self._decode(self._ids)
        self._first = len(self._ids)
        self._unfinished = b""
        self._begun: str | None = None
        raw = [_raw_bytes(tokenizer, token_id) or b"\n" for token_id in self._ids[-4:]]
        if unfinished := _unfinished(b"".join(raw)):
            count = len(unfinished)
            is_split = all(len(part) == 1 for part in raw[-count:])
            self._first -= count if is_split else 1
            self._unfinished = unfinished
            self._begun = self._decode(self._ids[:-count]) if is_split else self._shown[:-1]

    def push(self, token_id: int) -> str:
        """Add one token; return the text that it completes."""
        step = self._next(token_id)
        is_started = bool(step.unfinished)
        self._ids, self._first, self._shown, added, self._unfinished = step
        if not added:
            if not is_started and len(self._ids) > _LONGEST:
                self._ids.pop()
            return ""
        self._begun = None
        # Bytes that are no text decide how the bytes after them are decoded, so they stay.
        if not (is_started or step.text.endswith(_REPLACED)) or len(self._ids) > _LONGEST:
            self._ids = self._ids[self._first :]
            self._shown = self._decode(self._ids)[: -1 if is_started else None]
        self._first = len(self._ids) - is_started
        return added

    def spelled(self, token_id: int) -> tuple[str, bytes]:
        """Return the text that a token would complete, and its own bytes; for one that is left out, its name and none."""
        step = self._next(token_id)
        raw = step.added.encode()
        if self._unfinished or step.unfinished or step.text.endswith(_REPLACED):
            raw = _raw_bytes(self._tokenizer, token_id) or self._alone(token_id).encode()
        name = "" if step.added or raw else self._tokenizer.decode([token_id])
        assert isinstance(name, str)
        return step.added or name, raw

    def _next(self, token_id: int) -> _Step:
        ids, first = [*self._ids, token_id], self._first
        text, unfinished = self._decode(ids), b""
        if text.endswith(_REPLACED):
            raw = _raw_bytes(self._tokenizer, token_id)
            if raw is not None:
                unfinished = _unfinished(self._unfinished + raw)
                if len(unfinished) == len(self._unfinished) + len(raw):
                    return _Step(ids, first, self._shown, "", unfinished)
        is_started = bool(unfinished)
        text = text[: -1 if is_started else None]
        if text.startswith(self._shown):
            added = text[len(self._shown) :]
        elif self._begun is not None and text.startswith(
            self._begun
        ):  # it completes the prompt's last character
            added = text[len(self._begun) :]
        else:
            ids, first = ids[first:], 0
            text = added = self._decode(ids)[: -1 if is_started else None]
        return _Step(ids, first, text, added, unfinished)

    def _alone(self, token_id: int) -> str:
        """Return the text of a token after the tokens so far, without the end of a character that they began."""
        before, after = self._decode(self._ids), self._decode([*self._ids, token_id])
        return after[len(before) :] if after.startswith(before) else self._decode([token_id])

    def _end_of(self, prompt: Sequence[int]) -> list[int]:
        """Return the last tokens of a prompt: some with text, from the beginning of a character on."""
        count = _CONTEXT
        while not self._decode(prompt[-count:]) and count < len(prompt):
            count *= 2
        ids = list(prompt[-count:])
        while ids and (_raw_bytes(self._tokenizer, ids[0]) or b"\n")[0] & 0xC0 == 0x80:
            ids = ids[1:]
        return ids

    def _decode(self, ids: Sequence[int]) -> str:
        text = self._decoder.decode(ids, skip_special_tokens=self._skips)
        assert isinstance(text, str)
        return text


@cache
def _bytes_of_letters() -> dict[str, int]:
    """Return the byte that each letter of a byte-level vocabulary stands for."""
    # Takes seconds, and is there where a tokenizer is.
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return {letter: byte for byte, letter in bytes_to_unicode().items()}


@lru_cache(1 << 16)
def _raw_bytes(tokenizer: PreTrainedTokenizerBase, token_id: int) -> bytes | None:
    """Return the bytes of a token that stands for bytes; None for one that stands for text."""
    token: object = tokenizer.convert_ids_to_tokens(token_id)
    text = tokenizer.decode([token_id])
    if not isinstance(token, str):
        return None
    raw = None
    if single := _RAW_BYTE.fullmatch(token):
        raw = bytes.fromhex(single[1])
    elif _REPLACED in text and all(letter in _bytes_of_letters() for letter in token):
        raw = bytes(_bytes_of_letters()[letter] for letter in token)
    return raw if raw is not None and raw.decode(errors="replace") == text else None


def _unfinished(raw: bytes) -> bytes:
    """Return the last bytes that begin a UTF-8 character and do not end it."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(raw)
    return decoder.getstate()[0]
