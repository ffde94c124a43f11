"""Call syntax of a format, as structural tags."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from specdec_server.tools.tool import Tool

_OPEN = {
    "additionalProperties",
    "patternProperties",
    "unevaluatedProperties",
    "$ref",
    "allOf",
    "anyOf",
    "oneOf",
}
MAX_BLANKS = 8
"""Maximum consecutive whitespace between parts of arguments, which prevents endless whitespace."""


def json_arguments(tool: Tool) -> dict[str, Any]:
    """Return the format of arguments as one JSON object: those that the tool names, unless its schema says more."""
    schema = tool.parameters
    if "properties" in schema and not schema.keys() & _OPEN:
        schema = {**schema, "additionalProperties": False}
    return {"type": "json_schema", "json_schema": schema, "max_whitespace_cnt": MAX_BLANKS}


@dataclass(frozen=True)
class CallSyntax:
    """A call format: the text around the arguments of one call and around all calls.

    Args:
        before: text before the arguments; `{name}` is the tool's name.
        behind: text after the arguments.
        first: text before the first call.
        last: text after the last call.
        separator: text between two calls; None if a message can contain only one call.
        arguments: returns the format of a tool's arguments.
        trigger: text that starts a call in free text, for tools with `strict`.
    """

    before: str
    behind: str
    first: str = ""
    last: str = ""
    separator: str | None = "\n"
    arguments: Callable[[Tool], dict[str, Any]] = json_arguments
    trigger: str | None = None

    def forced(self, tools: Sequence[Tool], *, is_parallel: bool) -> dict[str, Any]:
        """Return the format of a text that consists only of calls of these tools, at least one."""
        tags = [self._tag(tool) for tool in tools]
        calls: dict[str, Any] = {
            "type": "tags_with_separator",
            "tags": tags,
            "separator": self.separator or "",
            "at_least_one": True,
            "stop_after_first": self.separator is None or not is_parallel,
        }
        if not self.first and not self.last:
            return calls
        return {"type": "tag", "begin": self.first, "content": calls, "end": self.last}

    def free(self, tools: Sequence[Tool]) -> dict[str, Any] | None:
        """Return the format of free text in which calls must use these tools and match their schemas.

        None if calls have no distinguishing start marker.
        """
        if self.trigger is None:
            return None
        tags = [self._tag(tool) for tool in tools]
        if self.first:
            content = {
                "type": "tags_with_separator",
                "tags": tags,
                "separator": self.separator or "",
                "at_least_one": True,
            }
            tags = [{"type": "tag", "begin": self.first, "content": content, "end": self.last}]
        return {"type": "triggered_tags", "triggers": [self.trigger], "tags": tags}

    def _tag(self, tool: Tool) -> dict[str, Any]:
        return {
            "type": "tag",
            "begin": self.before.replace("{name}", tool.name),
            "content": self.arguments(tool),
            "end": self.behind,
        }
