"""Hermes format, also used by Qwen 2.5 and Qwen 3: `<tool_call>{"name": ..., "arguments": ...}</tool_call>`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from specdec_server.tools.object_parser import ObjectParser
from specdec_server.tools.parser import certain_until
from specdec_server.tools.syntax import CallSyntax
from specdec_server.tools.tool import Tool

BEGIN = "<tool_call>"
END = "</tool_call>"


class HermesParser(ObjectParser):
    """Finds calls between tags; the last end tag may be missing."""

    template_marks: ClassVar[tuple[str, ...]] = (BEGIN,)

    def __init__(self, tools: Sequence[Tool]) -> None:
        super().__init__(tools)
        self._is_behind = False
        """Whether the object of a call has ended, valid or not, but its end tag has not arrived."""
        self._is_broken = False

    @classmethod
    def fits(cls, template: str) -> int:
        """Return how well the format fits a template; other formats use the same tags."""
        return 0 if "<arg_key>" in template else super().fits(template)

    @classmethod
    def syntax(cls, template: str) -> CallSyntax:
        """Return the call syntax."""
        return CallSyntax(
            before='<tool_call>\n{"name": "{name}", "arguments": ', behind="}\n</tool_call>", trigger=BEGIN
        )

    def _step(self, *, is_end: bool) -> bool:
        if self._is_behind:
            return self._step_behind(is_end=is_end)
        if self._call is None:
            if self._say_until((BEGIN,), is_end=is_end) is None:
                return False
            self._open_call(self._take(len(BEGIN)), needs_arguments=False)
        call = self._read_call(is_end=is_end)
        if call.name is not None and (call.is_done or call.is_wrong):
            self._is_behind, self._is_broken = True, call.is_wrong and not call.has_arguments
        return bool(self._buffer)

    def _step_behind(self, *, is_end: bool) -> bool:
        """Skip to the end tag or the next call; invalid arguments extend to there and are passed to the client."""
        marks = (END,) if self._is_broken else (END, BEGIN)
        at, mark = certain_until(self._buffer, marks, is_end=is_end)
        text = self._take(at)
        if self._is_broken:
            self._argue(text)
        if mark is not None:
            self._take(len(END) if mark == END else 0)
            self._is_behind = False
        return mark is not None
