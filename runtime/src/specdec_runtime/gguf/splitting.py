"""Pre-tokenization before byte-pair merges, for kinds of GGUF files that transformers does not support."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import pre_tokenizers
from transformers import PreTrainedTokenizerBase

logger = logging.getLogger("specdec")

_DIGITS = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"})
"""Kinds that split off every digit, then split as GPT-2 does; the names are llama.cpp's."""
_GPT2 = frozenset({"gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "mellum"})


def set_splitting(tokenizer: PreTrainedTokenizerBase, file: Path, fields: Mapping[str, Any]) -> None:
    """Make the tokenizer split text as it was split when the merges were learned; warn if that is not known.

    Args:
        tokenizer: the tokenizer made by transformers, changed in place.
        file: the file, for messages.
        fields: the file's metadata.
    """
    if fields.get("tokenizer.ggml.model") != "gpt2":
        return
    kind = fields.get("tokenizer.ggml.pre", "default")
    if kind in _DIGITS:
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    elif kind not in _GPT2 and not _is_split_by_transformers(tokenizer):
        logger.warning(
            "%s: how its tokenizer (%r) splits text is not known to transformers, so text is split as for GPT-2: it may become "
            "other tokens than the model was trained with, which costs quality; pass tokenizer= to take the published one",
            file.name,
            kind,
        )


def _is_split_by_transformers(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether transformers set its own pre-tokenizer instead of leaving GPT-2's."""
    return not isinstance(tokenizer.backend_tokenizer.pre_tokenizer, pre_tokenizers.ByteLevel)
