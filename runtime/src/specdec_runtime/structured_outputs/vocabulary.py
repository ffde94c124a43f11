"""A tokenizer as llguidance takes it: the bytes of each token."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

if TYPE_CHECKING:
    from llguidance import LLTokenizer

_BYTE_OF = {letter: byte for byte, letter in bytes_to_unicode().items()}
_RAW_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Vocabulary:
    """The tokens of a tokenizer. Their names follow llguidance's `TokenizerWrapper`.

    Args:
        tokens: the bytes of each token; none for ids without a text.
        ends: the ids that end a text.
        tokenizer: spells forced text; None to force no tokens.
    """

    bos_token_id = None

    def __init__(
        self, tokens: Sequence[bytes], ends: Sequence[int], tokenizer: PreTrainedTokenizerBase | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = ends[0]
        self.special_token_ids = list(ends)
        self._ends = list(ends)
        self.tokens = [b"\xff<end>" if i in set(ends) else token for i, token in enumerate(tokens)]
        self.spell = lru_cache(4096)(self._spelled)
        """Returns the ids by which the tokenizer spells a part of a text; none if it spells something else."""

    def __call__(self, text: str | bytes) -> list[int]:
        """llguidance forces no tokens: a mask allows every spelling of a forced text, and `spell` drafts the usual one."""
        return []

    def _spelled(self, text: bytes) -> tuple[int, ...]:
        if self._tokenizer is None:
            return ()
        ids: list[int] = self._tokenizer(text.decode(errors="ignore"), add_special_tokens=False)["input_ids"]
        spelled = b""
        for length, token_id in enumerate(ids):
            spelled += self.tokens[token_id]
            if not text.startswith(spelled):
                return tuple(ids[:length])
        return tuple(ids)

    def compiled(self) -> LLTokenizer:
        """Return what llguidance compiles grammars for."""
        from llguidance import LLTokenizer, TokenizerWrapper

        return LLTokenizer(TokenizerWrapper(self), eos_token=self._ends)


def vocabulary_of(tokenizer: PreTrainedTokenizerBase, vocab_size: int, ends: Sequence[int]) -> Vocabulary:
    """Return the vocabulary of a tokenizer with `vocab_size` ids; those without a token have no text."""
    tokens = [b""] * vocab_size
    backend = getattr(tokenizer, "backend_tokenizer", None)
    is_byte_level = backend is not None and "ByteLevel" in repr(backend.decoder)
    added = {number: token.content for number, token in tokenizer.added_tokens_decoder.items()}
    for name, number in tokenizer.get_vocab().items():
        if 0 <= number < vocab_size:
            tokens[number] = added[number].encode() if number in added else _bytes_of(name, is_byte_level)
    return Vocabulary(tokens, ends, tokenizer)


def _bytes_of(name: str, is_byte_level: bool) -> bytes:
    if single := _RAW_BYTE.fullmatch(name):
        return bytes.fromhex(single[1])
    if is_byte_level and all(letter in _BYTE_OF for letter in name):
        return bytes(_BYTE_OF[letter] for letter in name)
    return name.replace("\u2581", " ").encode()
