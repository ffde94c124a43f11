"""Converts conversations with tools for chat templates."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from pydantic_core import from_json

from specdec import ConfigError
from specdec.config import notice
from specdec_server.tools.hermes import BEGIN, END
from specdec_server.tools.tool import Tool

Messages = list[dict[str, Any]]
_ROLES = ("system", "developer", "user", "assistant", "tool")
_RESULTS_APART = "\n</tool_response>\n<tool_response>\n"


def supports_tools(template: str) -> bool:
    """Return whether a chat template supports tools."""
    return "tools" in template or "tool_calls" in template


def check_roles(messages: Sequence[Mapping[str, Any]], template: str) -> None:
    """Check that the chat template knows the role of each message; most templates write any word as a role.

    Args:
        messages: each with a role.
        template: the chat template; the roles that it spells are known as well.

    Raises:
        ConfigError: for another role.
    """
    for place, message in enumerate(messages):
        role = message["role"]
        if role not in _ROLES and f"'{role}'" not in template and f'"{role}"' not in template:
            raise ConfigError(f"messages[{place}]: the role {role!r:.100} is none of {', '.join(_ROLES)}")


def for_template(messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool], template: str) -> Messages:
    """Return messages in the format that a chat template expects.

    If the template has no role `developer`, those messages become system messages. If it does not support tools, the system
    message describes them, and calls and results are written as text.

    Args:
        messages: in OpenAI's format, with the content of each as one text.
        tools: available to the model.
        template: the chat template.

    Raises:
        ConfigError: for unknown roles, invalid calls or reasoning.
    """
    check_roles(messages, template)
    found = [_with_mappings(place, dict(message)) for place, message in enumerate(messages)]
    if "developer" not in template and any(message["role"] == "developer" for message in found):
        found = _joined([{**m, "role": "system"} if m["role"] == "developer" else m for m in found], "system")
    has_calls = any(message["role"] == "tool" or message.get("tool_calls") for message in found)
    if supports_tools(template) or not (tools or has_calls):
        return found
    if tools:
        notice(
            "tools:template", "the chat template writes no tools: they are described in the system's message"
        )
        found = _introduced(found, _introduction(tools))
    return [_as_text(message) for message in _joined(found, "tool", _RESULTS_APART)]


def _with_mappings(place: int, message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with call arguments as mappings, as templates expect, instead of JSON text."""
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if reasoning is not None and not isinstance(reasoning, str):
        raise ConfigError(f"messages[{place}]: reasoning must be text, not {type(reasoning).__name__}")
    if reasoning:
        message["reasoning_content"] = message["reasoning"] = reasoning
    calls = message.get("tool_calls")
    if calls is not None:
        if not isinstance(calls, list):
            raise ConfigError(f"messages[{place}]: tool_calls must be a list")
        message["tool_calls"] = [
            _call(f"messages[{place}].tool_calls[{i}]", call) for i, call in enumerate(calls)
        ]
    return message


def _call(place: str, call: object) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise ConfigError(f"{place} has no function with a name")
    arguments = function.get("arguments", {})
    if not isinstance(arguments, str | dict):
        raise ConfigError(f"{place}: arguments must be JSON text, not {type(arguments).__name__}")
    if isinstance(arguments, str):
        with suppress(ValueError):
            found = from_json(arguments or "{}")  # nested no deeper than a body may be
            arguments = found if isinstance(found, dict) else arguments
    assert isinstance(call, Mapping)
    return {**call, "function": {**function, "arguments": arguments}}


def _as_text(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with tool calls and results written as content."""
    content = message.get("content") or ""
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{content}\n</tool_response>"}
    calls = [
        f"{BEGIN}\n{json.dumps({key: call['function'].get(key) for key in ('name', 'arguments')}, ensure_ascii=False)}\n{END}"
        for call in message.get("tool_calls") or ()
    ]
    return {**message, "content": "\n".join([*([content] if content else []), *calls])}


def _introduced(messages: Messages, introduction: str) -> Messages:
    if messages and messages[0]["role"] == "system":
        first = messages[0]
        return [{**first, "content": f"{first['content']}\n\n{introduction}".strip()}, *messages[1:]]
    return [{"role": "system", "content": introduction}, *messages]


def _introduction(tools: Sequence[Tool]) -> str:
    listed = "\n".join(json.dumps(tool.as_template()["function"], ensure_ascii=False) for tool in tools)
    form = '{"name": <name>, "arguments": <object>}'
    return (
        f"These functions can be called:\n{listed}\n\nA call is written as\n{BEGIN}\n{form}\n{END}\n"
        "and its result comes between <tool_response> and </tool_response>."
    )


def _joined(messages: Messages, role: str, separator: str = "\n\n") -> Messages:
    """Merge adjacent messages of a role, since templates accept only one system message, at the start."""
    found: Messages = []
    for kind, group in groupby(messages, key=lambda message: message["role"]):
        first, *others = group
        if kind == role and others:
            texts = [text for message in (first, *others) if (text := message.get("content"))]
            others = []
            first = {**first, "content": separator.join(texts)}
        found += [first, *others]
    return found
