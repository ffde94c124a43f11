"""Reads the prompts that a target answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from specdec import ConfigError
from specdec_cli.bench.prompt_file import ChatPrompt, read_prompts
from specdec_train.answers.record import digest_of


def read_chat_prompts(files: Sequence[Path]) -> list[ChatPrompt]:
    """Return the prompts of files without duplicates, in file order; see `specdec_cli.bench.prompt_file.read_prompts`.

    Raises:
        ConfigError: naming the file or line that is wrong, or that has token ids instead of text.
    """
    found: dict[tuple[str, ...], ChatPrompt] = {}
    for file in files:
        for place, prompt in read_prompts(file):
            if isinstance(prompt, list):
                raise ConfigError(f"{place}: answers are made to text: give 'prompt', 'messages' or 'turns'")
            found.setdefault((json.dumps(prompt.messages), *prompt.later), prompt)
    return list(found.values())


def source_of(prompt: ChatPrompt) -> str:
    """Return a hash that all turns of a conversation share."""
    return digest_of(next(str(m["content"]) for m in prompt.messages if m["role"] == "user"))
