"""How a format spells calls, as xgrammar's structural tags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specdec_server.tools.tool import Tool

MAX_BLANKS = 8
"""The most blanks in a row between the parts of arguments, so that a model cannot go on with blanks for ever."""


@dataclass(frozen=True)
class CallSyntax:
    """A format: what comes before and after the arguments of one call, and around all calls.

    Args:
        before: before the arguments; `{name}` is the tool's name.
        behind: behind the arguments.
        first: before the first call.
        last: behind the last call.
        separator: between two calls; None where a message can hold one call only.
        style: of the arguments, as xgrammar names it.
        trigger: what begins a call in free text, for tools with `strict`.
    """

    before: str
    behind: str
    first: str = ""
    last: str = ""
    separator: str | None = "\n"
    style: str = "json"
    trigger: str | None = None

    def forced(self, tools: Sequence[Tool], *, is_parallel: bool) -> dict[str, Any]:
        """Return the format of a text that is nothing but calls of some tools, at least one of them."""
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
        """Return the format of free text in which every call is one of some tools and keeps to its schema; None if the
        calls cannot be told from text by how they begin."""
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
        content = {
            "type": "json_schema",
            "json_schema": tool.parameters,
            "style": self.style,
            "max_whitespace_cnt": MAX_BLANKS,
        }
        return {
            "type": "tag",
            "begin": self.before.replace("{name}", tool.name),
            "content": content,
            "end": self.behind,
        }
