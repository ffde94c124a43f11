"""Converts the input items of a response to chat messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from specdec import ConfigError

_TEXTS = ("input_text", "output_text", "text", "reasoning_text", "summary_text")
_ROLES = ("system", "developer", "user", "assistant")
Messages = list[dict[str, Any]]


def messages_of(given: str | Sequence[Mapping[str, Any]]) -> Messages:
    """Return messages with text content; the calls of one turn and the reasoning before them form one message.

    Args:
        given: text of the user, or items.

    Raises:
        ConfigError: for an unsupported or invalid item.
    """
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    found: Messages = []
    for place, item in enumerate(given):
        kind = item.get("type", "message" if "role" in item else None)
        if not isinstance(kind, str) or kind not in _ADDERS:
            raise ConfigError(
                f"input[{place}]: type {kind!r} is not supported: only messages, reasoning and function calls are"
            )
        _ADDERS[kind](found, item, f"input[{place}]")
    return found


def _add_message(found: Messages, item: Mapping[str, Any], place: str) -> None:
    role = item.get("role")
    if role not in _ROLES:
        raise ConfigError(f"{place}: the role {role!r:.100} is none of {', '.join(_ROLES)}")
    text = _text_of(item.get("content"), f"{place}.content")
    if role == "assistant" and _is_thought(found):
        found[-1]["content"] = text
    else:
        found.append({"role": role, "content": text})


def _add_reasoning(found: Messages, item: Mapping[str, Any], place: str) -> None:
    text = _text_of(item.get("content") or item.get("summary") or [], place)
    if text:
        found.append({"role": "assistant", "content": None, "reasoning": text})


def _add_call(found: Messages, item: Mapping[str, Any], place: str) -> None:
    names = ("call_id", "name", "arguments")
    if not all(isinstance(item.get(name), str) for name in names):
        raise ConfigError(f"{place}: a function call needs {', '.join(names)}, each a text")
    if not found or found[-1]["role"] != "assistant":
        found.append({"role": "assistant", "content": None})
    call = {
        "id": item["call_id"],
        "type": "function",
        "function": {"name": item["name"], "arguments": item["arguments"]},
    }
    found[-1].setdefault("tool_calls", []).append(call)


def _add_output(found: Messages, item: Mapping[str, Any], place: str) -> None:
    if not isinstance(item.get("call_id"), str):
        raise ConfigError(f"{place}: the output of a call needs its call_id")
    text = _text_of(item.get("output"), f"{place}.output")
    found.append({"role": "tool", "tool_call_id": item["call_id"], "content": text})


_ADDERS: Mapping[str, Callable[[Messages, Mapping[str, Any], str], None]] = {
    "message": _add_message,
    "reasoning": _add_reasoning,
    "function_call": _add_call,
    "function_call_output": _add_output,
}


def _is_thought(found: Messages) -> bool:
    return (
        bool(found)
        and found[-1]["role"] == "assistant"
        and "reasoning" in found[-1]
        and found[-1]["content"] is None
    )


def _text_of(content: object, place: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not all(isinstance(part, Mapping) for part in content):
        raise ConfigError(f"{place} must be text or a list of parts")
    for part in content:
        if part.get("type") not in _TEXTS or not isinstance(part.get("text"), str):
            raise ConfigError(f"{place}: a part of type {part.get('type')!r} is not supported: give text")
    return "\n".join(part["text"] for part in content)
