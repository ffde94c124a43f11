"""The content of a conversation's messages: text, or a list of text parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdec import ConfigError
from specdec.text import check_unicode
from specdec_runtime.chat.plain_text import texts

_TEXT_TYPES = ("text", "input_text", "output_text")


def checked_message(message: object, where: str) -> dict[str, Any]:
    """Return a message whose content is text, a list of parts of type `text`, or None beside tool calls.

    Args:
        message: with `role` and `content`, as in OpenAI's interface.
        where: the message's place, for errors.

    Raises:
        ConfigError: if it is not a message of text.
    """
    if not isinstance(message, Mapping):
        raise ConfigError(f"{where} must be a mapping with role and content, not {type(message).__name__}")
    if not isinstance(message.get("role"), str):
        raise ConfigError(f"{where} has no role")
    for key, value in message.items():
        for text in texts(value):
            check_unicode(text, f"{where}[{key!r}]")
    content, role = message.get("content"), message["role"]
    if content is None and role != "assistant":
        raise ConfigError(f"{where}: content is null; a message of the role {role!r:.100} needs text")
    if content is None:
        content = None if message.get("tool_calls") else ""
    elif isinstance(content, list | tuple):
        content = [{"type": "text", "text": _text(part, where)} for part in content]
    elif not isinstance(content, str):
        raise ConfigError(f"{where}: content must be text or a list of parts, not {type(content).__name__}")
    return {**message, "content": content}


def as_text(message: dict[str, Any]) -> dict[str, Any]:
    """Return a checked message with its text parts joined by newlines."""
    parts = message["content"]
    return (
        {**message, "content": "\n".join(part["text"] for part in parts)}
        if isinstance(parts, list)
        else message
    )


def as_parts(message: dict[str, Any]) -> dict[str, Any]:
    """Return a checked message with its text as a list of one part."""
    text = message["content"]
    return {**message, "content": [{"type": "text", "text": text}]} if isinstance(text, str) else message


def _text(part: object, where: str) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type", "text") if isinstance(part, Mapping) else type(part).__name__
    text = part.get("text") if isinstance(part, Mapping) and kind in _TEXT_TYPES else None
    if not isinstance(text, str):
        raise ConfigError(f"{where}: a part of type {kind!r} is not supported: give text")
    return text
