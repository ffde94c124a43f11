"""Held-out prompts: pieces of Python that the zoo's models were not trained on."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import TypedDict

_FILE = Path(__file__).with_name("prompts.jsonl.xz")

KINDS = ("docstring", "function", "repetition", "edit")
"""What a prompt is cut in the middle of."""


class Prompt(TypedDict):
    """One prompt: its text, what it is cut in the middle of, and the file and line of the cut."""

    prompt: str
    kind: str
    source: str


def prompts(limit: int | None = None, kind: str | None = None) -> list[Prompt]:
    """The held-out prompts; the kinds take turns, so the first few are a fair sample.

    Args:
        limit: how many to return at most, None for all.
        kind: only prompts of this kind (one of `KINDS`), None for all.

    Raises:
        ValueError: unknown kind or a negative limit.
        FileNotFoundError: the zoo has not been built in this checkout.
    """
    if kind is not None and kind not in KINDS:
        raise ValueError(f"no prompts of kind {kind!r}; kinds are: {', '.join(KINDS)}")
    if limit is not None and limit < 0:
        raise ValueError(f"limit={limit} must not be negative")
    if not _FILE.exists():
        raise FileNotFoundError(f"{_FILE} is missing; build the zoo with `make zoo`")
    with lzma.open(_FILE, "rt", encoding="utf-8") as lines:
        found: list[Prompt] = [json.loads(line) for line in lines]
    if kind is not None:
        found = [prompt for prompt in found if prompt["kind"] == kind]
    return found[:limit]
