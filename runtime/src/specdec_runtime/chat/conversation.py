"""Conversations as prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from transformers import PreTrainedTokenizerBase

from specdec import ConfigError
from specdec.interfaces import ChatTemplates
from specdec.text import check_unicode
from specdec_runtime.chat.message_content import as_parts, as_text, checked_message
from specdec_runtime.chat.plain_text import PlainText
from specdec_runtime.chat.template_arguments import template_arguments

_PROBE = "abc"


class TokenizerTemplates(ChatTemplates):
    """Applies the chat templates of tokenizers."""

    name: ClassVar[str] = "chat_templates"

    def prompt(
        self,
        tokenizer: PreTrainedTokenizerBase,
        messages: Sequence[Mapping[str, Any]],
        options: Mapping[str, Any],
        check_length: Callable[[str], None] | None = None,
    ) -> dict[str, Any]:
        """See `ChatTemplates.prompt`."""
        return conversation_prompt(tokenizer, messages, options, check_length)


def conversation_prompt(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, Any]],
    options: Mapping[str, Any],
    check_length: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Render a conversation with the tokenizer's chat template; returns text and token ids.

    A special token that is spelled in a message, or in an option, stays text.

    Args:
        tokenizer: the target's tokenizer.
        messages: each with `role` and `content`.
        options: `ChatOptions` and variables of the template.
        check_length: called with the text before it is tokenized.

    Raises:
        ConfigError: if the tokenizer has no chat template, the template rejects the messages, or they are too
            long; for content that is not text, and for options that would have no effect.
    """
    if tokenizer.chat_template is None and not options.get("chat_template"):
        raise ConfigError(
            "chat needs a tokenizer with a chat template; use generate, or set tokenizer.chat_template"
        )
    given, form = template_arguments(tokenizer, options)
    if not isinstance(messages, list | tuple) or not messages:
        raise ConfigError(f"messages must be a list of at least one message, not {messages!r}")
    conversation: list[Any] = [
        checked_message(message, f"messages[{i}]") for i, message in enumerate(messages)
    ]
    if form == "auto":
        has_parts = any(isinstance(message["content"], list) for message in conversation)
        form = "auto" if has_parts and _accepts_content_parts(tokenizer, given) else "string"
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
    if check_length is not None:
        check_length(text)
    if first is not None:
        return {"prompt": plain.unmarked(text, first), "prompt_token_ids": plain.token_ids(text, first)}
    # The template has already written all special tokens, including those at the start.
    return {"prompt": text, "prompt_token_ids": list(tokenizer(text, add_special_tokens=False)["input_ids"])}


def _accepts_content_parts(tokenizer: PreTrainedTokenizerBase, given: Mapping[str, Any]) -> bool:
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
