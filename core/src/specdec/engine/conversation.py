"""Conversations as prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from specdec.engine.plain_text import PlainText
from specdec.engine.prompt_length import PromptLength
from specdec.errors import ConfigError


def conversation_prompt(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, Any]],
    arguments: Mapping[str, Any],
    *,
    length: PromptLength | None = None,
) -> dict[str, Any]:
    """Render a conversation with the tokenizer's chat template; returns text and token ids.

    A special token that is spelled in a message, or in an argument, stays text.

    Args:
        tokenizer: the target's tokenizer.
        messages: each with `role` and `content`.
        arguments: template arguments; `add_generation_prompt` is True unless given.
        length: checks the number of characters; None for no limit.

    Raises:
        ConfigError: if the tokenizer has no chat template, the template rejects the messages, or they are too
            long.
    """
    if tokenizer.chat_template is None:
        raise ConfigError(
            "chat needs a tokenizer with a chat template; use generate, or set tokenizer.chat_template"
        )
    given = {"add_generation_prompt": True} | dict(arguments)
    conversation: list[Any] = list(messages)
    plain, first = PlainText(tokenizer), None
    said = {name: value for name, value in given.items() if name != "chat_template"}
    if plain.is_spelled_in(conversation, said):
        first = plain.first_mark(conversation, given, tokenizer.chat_template)
        conversation, given = plain.marked(conversation, first), given | plain.marked(said, first)
    try:
        text = str(tokenizer.apply_chat_template(conversation, tokenize=False, **given))
    except Exception as error:  # a template is a program and may raise anything
        raise ConfigError(f"the chat template rejects these messages: {error}") from None
    if length is not None:
        length.check(text)
    if first is not None:
        return {"prompt": plain.unmarked(text, first), "prompt_token_ids": plain.token_ids(text, first)}
    # The template has already written all special tokens, including those at the start.
    return {"prompt": text, "prompt_token_ids": list(tokenizer(text, add_special_tokens=False)["input_ids"])}
