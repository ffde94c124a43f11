"""Checks from files alone that a draft model has the context length and the vocabulary that are needed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from specdec import ConfigError
from specdec.config import CONTEXT_KEYS, VOCABULARY_KEYS, Checkpoint, TargetFacts, inside


def check_context(draft: Checkpoint, limit: int | None) -> None:
    """Check that a draft was made for contexts of `limit` tokens.

    Raises:
        ConfigError: if it was not.
    """
    context = draft.number(*CONTEXT_KEYS)
    if limit is not None and context is not None and limit > context:
        raise ConfigError(
            f"speculative_config: 'max_model_len' = {limit} is above the {context} tokens {draft.model} was made for"
        )


def check_vocabulary(draft: Checkpoint, target: TargetFacts) -> None:
    """Check that the draft's vocabulary is the target's; one of them may have unused ids at its end.

    Raises:
        ConfigError: if it is not; shows the first ids that differ where both tokenizers can be read.
    """
    size, wanted = draft.number(*VOCABULARY_KEYS), target.vocab_size
    if size is None or wanted is None or size == wanted:
        return
    differences = ""
    if target.model is not None:
        ours, theirs = read_tokens(Path(target.model)), read_tokens(draft.directory)
        if ours is not None and theirs is not None:
            differences = first_differences(ours, theirs)
            if not differences:
                return
    raise ConfigError(
        f"speculative_config: 'model': {draft.model} has a vocabulary of {size} tokens, the target one of {wanted}"
        + (f"; the first ids that differ (target and draft): {differences}" if differences else "")
        + ": take a draft with the target's tokenizer, or set 'use_heterogeneous_vocab': true"
    )


def read_tokens(directory: Path) -> dict[str, int] | None:
    """Return the ids of all tokens of the tokenizer in a directory, or None without a readable `tokenizer.json`."""
    try:
        content = json.loads(inside(directory, "tokenizer.json", directory).read_text(encoding="utf-8"))
        vocabulary = content["model"]["vocab"]
        tokens: dict[str, int] = (
            dict(vocabulary)
            if isinstance(vocabulary, dict)
            else {entry[0]: index for index, entry in enumerate(vocabulary)}
        )
        tokens.update((token["content"], token["id"]) for token in content.get("added_tokens", ()))
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return tokens


def first_differences(ours: Mapping[str, int], theirs: Mapping[str, int]) -> str:
    """Return the first three ids that stand for different tokens, as text; empty if there are none.

    Args:
        ours: the target's ids by token.
        theirs: the draft's ids by token.
    """
    names, others = ({index: token for token, index in tokens.items()} for tokens in (ours, theirs))
    found = [i for i in sorted({*names, *others}) if names.get(i) != others.get(i)]
    return ", ".join(f"{i}: {names.get(i)!r} and {others.get(i)!r}" for i in found[:3])
