"""Maps tokens to ids, from a checkpoint's `tokenizer.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path


def read_tokens(directory: Path) -> dict[str, int] | None:
    """Return the ids of all tokens of the tokenizer in a directory, or None without a readable `tokenizer.json`."""
    try:
        content = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))
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
