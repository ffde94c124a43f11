"""Calls as a JSON list, `[{"name": ..., "parameters": ...}]`, for forced calls if the model's own format cannot be forced."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_server.tools.object_parser import ObjectParser
from specdec_server.tools.syntax import CallSyntax
from specdec_server.tools.tool import Tool


class JsonListParser(ObjectParser):
    """Reads a message that is a list of calls."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        super().__init__(tools)
        self._is_over = False

    @classmethod
    def syntax(cls, template: str) -> CallSyntax:
        """Return the call syntax."""
        return CallSyntax(
            before='{"name": "{name}", "parameters": ', behind="}", first="[", last="]", separator=", "
        )

    def _step(self, *, is_end: bool) -> bool:
        if self._is_over:
            self._say(self._take(len(self._buffer)))
            return False
        if self._call is None:
            self._buffer = self._buffer.lstrip(" \t\r\n[,")
            if not self._buffer:
                return False
            self._open_call("", needs_arguments=False)
        call = self._read_call(is_end=is_end)
        self._is_over = call.is_wrong or self._buffer.startswith("]")
        return bool(self._buffer)
