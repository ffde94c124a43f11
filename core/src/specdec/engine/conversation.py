"""Conversations as prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from specdec.errors import ConfigError


def conversation_prompt(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a conversation as the tokenizer's chat template writes it, as text and as token ids.

    Args:
        tokenizer: of the target.
        messages: each with `role` and `content`.
        arguments: of the template; the next message is begun unless they say otherwise.

    Raises:
        ConfigError: if the tokenizer has no chat template, or the template does not take the messages.
    """
    if tokenizer.chat_template is None:
        raise ConfigError(
            "chat needs a tokenizer with a chat template; use generate, or set tokenizer.chat_template"
        )
    given = {"add_generation_prompt": True} | dict(arguments)
    conversation: list[Any] = list(messages)
    try:
        text = str(tokenizer.apply_chat_template(conversation, tokenize=False, **given))
    except Exception as error:  # a template is a program, and may fail in any way
        raise ConfigError(f"the chat template does not take these messages: {error}") from None
    # The template has written the special tokens, those at the start as well.
    return {"prompt": text, "prompt_token_ids": list(tokenizer(text, add_special_tokens=False)["input_ids"])}
