"""Reads prompts: from a JSONL file, or from the zoo."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from specdec import ConfigError
from specdec_bench.lines import json_lines

Prompt = str | list[int]
KEYS = ("prompt", "prompt_token_ids")


def read_dataset(path: Path, limit: int | None = None) -> list[Prompt]:
    """Return the prompts of a JSONL file: `{"prompt": ...}` or `{"prompt_token_ids": ...}` a line.

    Other keys of a line are ignored; blank lines are skipped.

    Args:
        path: the file.
        limit: the most prompts to read; None for all.

    Raises:
        ConfigError: naming the file and the number of the invalid line.
    """
    lines = islice(json_lines(path), limit)
    prompts = [_prompt(entry, place) for place, entry in lines]
    if not prompts:
        raise ConfigError(f"{path} holds no prompts")
    return prompts


def zoo_prompts(limit: int | None = None) -> list[Prompt]:
    """Return held-out prompts of the zoo.

    Raises:
        ConfigError: if the zoo is not installed or has none.
    """
    try:
        zoo = importlib.import_module("specdec_zoo")
    except ImportError:
        raise ConfigError(
            "the built-in prompts need the zoo: pip install specdec-zoo, or give --dataset"
        ) from None
    try:
        return [prompt["prompt"] for prompt in zoo.prompts(limit=limit)]
    except (OSError, ValueError) as error:
        raise ConfigError(f"the zoo has no prompts ({error}); give --dataset") from None


def tokenize(
    prompts: Iterable[Prompt], tokenizer: PreTrainedTokenizerBase | None, max_model_len: int
) -> tuple[tuple[int, ...], ...]:
    """Return every prompt as token ids.

    Raises:
        ConfigError: for text without a tokenizer, and for a prompt that leaves no room for output.
    """
    found: list[tuple[int, ...]] = []
    for number, prompt in enumerate(prompts, 1):
        if isinstance(prompt, str):
            if tokenizer is None:
                raise ConfigError("prompts of text need a tokenizer, and the model has none: give token ids")
            ids = tuple(tokenizer(prompt)["input_ids"])
        else:
            ids = tuple(prompt)
        if not 0 < len(ids) < max_model_len:
            raise ConfigError(
                f"prompt {number} has {len(ids)} tokens: between 1 and {max_model_len - 1} fit the model"
            )
        found.append(ids)
    return tuple(found)


def _prompt(entry: Any, place: str) -> Prompt:
    given = [key for key in KEYS if key in entry] if isinstance(entry, dict) else []
    if len(given) != 1:
        is_question = isinstance(entry, dict) and "turns" in entry
        remedy = "; for questions with 'turns' add --suite spec_bench" if is_question else ""
        raise ConfigError(f"{place}: needs one of the keys {' and '.join(map(repr, KEYS))}{remedy}")
    value = entry[given[0]]
    if given[0] == "prompt":
        if not isinstance(value, str) or not value:
            raise ConfigError(f"{place}: 'prompt' must be text, got {value!r}")
        return value
    if not isinstance(value, list) or not value or not all(type(token) is int for token in value):
        raise ConfigError(f"{place}: 'prompt_token_ids' must be a list of integers")
    return value
