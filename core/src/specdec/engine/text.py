"""Turns token ids into text as they arrive."""

from __future__ import annotations

from typing import Any

from tokenizers.decoders import DecodeStream
from transformers import PreTrainedTokenizerBase

_CONTEXT = 6


class TextStream:
    """Incremental detokenisation of one sample; a character whose bytes are incomplete is held back.

    Args:
        tokenizer: the target's tokenizer.
        prompt_token_ids: the prompt, whose end decides how the first token is spelled.
        skip_special_tokens: whether special tokens are left out.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, prompt_token_ids: list[int], *, skip_special_tokens: bool
    ) -> None:
        self._tokenizer = tokenizer
        self._backend: Any = getattr(tokenizer, "backend_tokenizer", None)
        self._skips = skip_special_tokens
        self._ids = list(prompt_token_ids[-_CONTEXT:])
        self._prefix, self._read = 0, len(self._ids)
        if self._backend is not None:
            self._stream = DecodeStream(ids=self._ids, skip_special_tokens=skip_special_tokens)

    def push(self, token_id: int) -> str:
        """Add one token; return the text that it completes."""
        if self._backend is not None:
            return self._stream.step(self._backend, token_id) or ""
        self._ids.append(token_id)
        before = self._decode(self._ids[self._prefix : self._read])
        after = self._decode(self._ids[self._prefix :])
        if len(after) <= len(before) or after.endswith("\ufffd"):
            return ""
        self._prefix, self._read = self._read, len(self._ids)
        return after[len(before) :]

    def _decode(self, ids: list[int]) -> str:
        text = self._tokenizer.decode(ids, skip_special_tokens=self._skips)
        assert isinstance(text, str)
        return text
