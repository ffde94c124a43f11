"""How text is split before byte-pair merges, for the kinds of GGUF files that transformers does not know."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import pre_tokenizers
from transformers import PreTrainedTokenizerBase

logger = logging.getLogger("specdec")

_DIGITS = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"})
"""Every digit by itself, then as GPT-2; the names are llama.cpp's."""
_GPT2 = frozenset({"gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "mellum"})


def set_splitting(tokenizer: PreTrainedTokenizerBase, file: Path, fields: Mapping[str, Any]) -> None:
    """Split text as the vocabulary's merges were learned, and warn where that is not known.

    Args:
        tokenizer: as transformers made it, changed in place.
        file: for messages.
        fields: metadata of the file.
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
    """Return whether transformers put in a rule of its own instead of leaving GPT-2's."""
    return not isinstance(tokenizer.backend_tokenizer.pre_tokenizer, pre_tokenizers.ByteLevel)
