"""The prompts of a run: from a file, or from the zoo."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from specdec import ConfigError
from specdec_cli.bench.prompt_file import ChatPrompt, read_prompts
from specdec_cli.chat_prompt import chat_prompt

Prompt = str | list[int] | ChatPrompt
"""Text to continue, token ids, or a conversation for the chat template."""


def read_dataset(path: Path, limit: int | None = None) -> list[Prompt]:
    """Return the prompts of a file; see `read_prompts`.

    Args:
        path: the file.
        limit: the most prompts to read; None for all.

    Raises:
        ConfigError: as `read_prompts`, and for a line with several turns.
    """
    prompts: list[Prompt] = []
    for place, prompt in islice(read_prompts(path), limit):
        if isinstance(prompt, ChatPrompt) and prompt.later:
            raise ConfigError(f"{place}: for questions with 'turns' add --suite spec_bench")
        prompts.append(prompt)
    return prompts


def zoo_prompts(limit: int | None = None) -> list[str]:
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
    """Return every prompt as token ids; a conversation as the model's chat template writes it.

    Raises:
        ConfigError: for text without a tokenizer, several messages without a chat template, and a prompt that leaves no
            room for output.
    """
    return tuple(
        _token_ids(prompt, f"prompt {number}", tokenizer, max_model_len)
        for number, prompt in enumerate(prompts, 1)
    )


def _token_ids(
    prompt: Prompt, place: str, tokenizer: PreTrainedTokenizerBase | None, max_model_len: int
) -> tuple[int, ...]:
    if isinstance(prompt, list):
        ids = prompt
    elif tokenizer is None:
        raise ConfigError("prompts of text need a tokenizer, and the model has none: give token ids")
    elif isinstance(prompt, str):
        ids = tokenizer(prompt)["input_ids"]
    elif tokenizer.chat_template is not None:
        ids = chat_prompt(tokenizer, prompt.messages)["prompt_token_ids"]
    elif len(prompt.messages) == 1:
        ids = tokenizer(prompt.messages[0]["content"])["input_ids"]
    else:
        raise ConfigError(
            f"{place} has several messages, and the model's tokenizer has no chat template: give single prompts"
        )
    if not 0 < len(ids) < max_model_len:
        raise ConfigError(f"{place} has {len(ids)} tokens: between 1 and {max_model_len - 1} fit the model")
    return tuple(ids)
