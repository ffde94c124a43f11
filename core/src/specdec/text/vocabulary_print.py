"""Tells tokenizers apart."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def fingerprint(tokenizer: PreTrainedTokenizerBase | None) -> str | None:
    """Return a hash of the ordered token strings of a tokenizer."""
    if tokenizer is None:
        return None
    digest = hashlib.sha256()
    for token, index in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]):
        digest.update(f"{index}\0{token}\0".encode())
    return digest.hexdigest()
