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
    """Return a conversation as the tokenizer's chat template writes it, as text and as token ids.

    A special token that is spelled in a message, or in an argument, stays text.

    Args:
        tokenizer: of the target.
        messages: each with `role` and `content`.
        arguments: of the template; the next message is begun unless they say otherwise.
        length: the most characters; None for any number.

    Raises:
        ConfigError: if the tokenizer has no chat template, the template does not take the messages, or they are too long.
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
    except Exception as error:  # a template is a program, and may fail in any way
        raise ConfigError(f"the chat template does not take these messages: {error}") from None
    if length is not None:
        length.check(text)
    if first is not None:
        return {"prompt": plain.unmarked(text, first), "prompt_token_ids": plain.token_ids(text, first)}
    # The template has written the special tokens, those at the start as well.
    return {"prompt": text, "prompt_token_ids": list(tokenizer(text, add_special_tokens=False)["input_ids"])}
