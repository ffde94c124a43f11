"""Conversations as prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from specdec.errors import ConfigError
from specdec.inputs.chat_options import template_arguments
from specdec.inputs.message_content import as_parts, as_text, checked_message
from specdec.inputs.plain_text import PlainText
from specdec.inputs.prompt_length import PromptLength
from specdec.unicode import check_unicode

_PROBE = "abc"


def as_conversations(messages: object) -> Sequence[Any]:
    """Return the conversations of one list of messages, or of several.

    Raises:
        ConfigError: if it is neither.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise ConfigError(
            f"messages must be a list of messages or of such lists, not {type(messages).__name__}: {messages!r}"
        )
    return [messages] if messages and isinstance(messages[0], Mapping) else messages


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
        arguments: `ChatOptions` and variables of the template.
        length: checks the number of characters; None for no limit.

    Raises:
        ConfigError: if the tokenizer has no chat template, the template rejects the messages, or they are too
            long; for content that is not text, and for arguments that would have no effect.
    """
    if tokenizer.chat_template is None and not arguments.get("chat_template"):
        raise ConfigError(
            "chat needs a tokenizer with a chat template; use generate, or set tokenizer.chat_template"
        )
    given, form = template_arguments(tokenizer, arguments)
    if not isinstance(messages, list | tuple) or not messages:
        raise ConfigError(f"messages must be a list of at least one message, not {messages!r}")
    conversation: list[Any] = [
        checked_message(message, f"messages[{i}]") for i, message in enumerate(messages)
    ]
    if form == "auto":
        has_parts = any(isinstance(message["content"], list) for message in conversation)
        form = "auto" if has_parts and _takes_parts(tokenizer, given) else "string"
    if form != "auto":
        formatted = as_text if form == "string" else as_parts
        conversation = [formatted(message) for message in conversation]
    plain, first = PlainText(tokenizer), None
    said = {name: value for name, value in given.items() if name != "chat_template"}
    if plain.is_spelled_in(conversation, said):
        first = plain.first_mark(conversation, given, tokenizer.chat_template)
        conversation, given = plain.marked(conversation, first), given | plain.marked(said, first)
    try:
        text = str(tokenizer.apply_chat_template(conversation, tokenize=False, **given))
    except Exception as error:  # a template is a program and may raise anything
        raise ConfigError(f"the chat template rejects these messages: {error}") from None
    check_unicode(text, "the text that the chat template made")
    if length is not None:
        length.check(text)
    if first is not None:
        return {"prompt": plain.unmarked(text, first), "prompt_token_ids": plain.token_ids(text, first)}
    # The template has already written all special tokens, including those at the start.
    return {"prompt": text, "prompt_token_ids": list(tokenizer(text, add_special_tokens=False)["input_ids"])}


def _takes_parts(tokenizer: PreTrainedTokenizerBase, given: Mapping[str, Any]) -> bool:
    """Return whether the chat template writes a list of text parts as it writes the text."""
    contents: tuple[Any, Any] = (_PROBE, [{"type": "text", "text": _PROBE}])
    try:
        as_string, as_list = (
            tokenizer.apply_chat_template(
                [{"role": "user", "content": content}],
                tokenize=False,
                chat_template=given.get("chat_template"),
            )
            for content in contents
        )
    except Exception:  # a template is a program and may raise anything
        return False
    return bool(as_string == as_list)
