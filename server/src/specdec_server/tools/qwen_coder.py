"""Qwen3-Coder's format: `<tool_call><function=name><parameter=key>value</parameter></function></tool_call>`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from specdec_server.tools.json_writing import written
from specdec_server.tools.parser import BufferedParser, certain_until, first_of
from specdec_server.tools.qwen_arguments import END_PARAMETER, PARAMETER, qwen_arguments
from specdec_server.tools.schema_types import types_of, value_of
from specdec_server.tools.syntax import CallSyntax
from specdec_server.tools.tool import Tool

BEGIN = "<tool_call>"
END = "</tool_call>"
FUNCTION = "<function="
END_FUNCTION = "</function>"
_AROUND = (PARAMETER, END_FUNCTION, END)
_TEXT = frozenset({"string"})
_NAME = re.compile(r"[\w.\-]+")


class QwenCoderParser(BufferedParser):
    """Finds calls written as XML; values get the types that the tool declares, or stay text if it declares none."""

    template_marks: ClassVar[tuple[str, ...]] = (BEGIN, FUNCTION, PARAMETER)

    def __init__(self, tools: Sequence[Tool]) -> None:
        super().__init__(tools)
        self._state = "text"
        self._schema: dict[str, Any] = {}
        self._types: frozenset[str] = frozenset()
        self._names: set[str] = set()
        self._is_repeated = False
        self._has_begun = False
        """Whether a piece of the value has been emitted; text values are emitted before they are complete."""

    @classmethod
    def syntax(cls, template: str) -> CallSyntax:
        """Return the call syntax."""
        return CallSyntax(
            before=f"{BEGIN}\n{FUNCTION}{{name}}>\n",
            behind=f"{END_FUNCTION}\n{END}",
            arguments=qwen_arguments,
            trigger=BEGIN,
        )

    def _step(self, *, is_end: bool) -> bool:
        if self._state == "text":
            mark = self._say_until((BEGIN, FUNCTION), is_end=is_end)
            if mark is None:
                return False
            self._state = "head"
        if self._state == "head":
            return self._step_head(is_end)
        return self._step_between(is_end) if self._state == "between" else self._step_value(is_end)

    def _step_head(self, is_end: bool) -> bool:
        """Read up to the function name; with an invalid name the text becomes content."""
        before = len(BEGIN) if self._buffer.startswith(BEGIN) else 0
        rest = self._buffer[before:].lstrip()
        at = rest.find(">")
        if rest.startswith(FUNCTION) and at >= 0:
            name = rest[len(FUNCTION) : at].strip()
            if _NAME.fullmatch(name):
                tool = self._tools.get(name)
                self._schema = {} if tool is None else tool.parameters
                self._start(name)
                self._buffer, self._state, self._names = rest[at + 1 :], "between", set()
                return True
            self._state = "text"
            self._say(self._take(self._buffer.index(FUNCTION) + len(FUNCTION)))
            return True
        if is_end or not (rest.startswith(FUNCTION) or FUNCTION.startswith(rest)):
            self._state = "text"
            self._say(self._take(len(self._buffer) if is_end else before or 1))
            return bool(self._buffer)
        return False

    def _step_between(self, is_end: bool) -> bool:
        """Read up to the next parameter or the end of the function."""
        at, mark = first_of(self._buffer, _AROUND)
        if mark is None:
            return False
        close = self._buffer.find(">", at)
        if close < 0:
            return False
        key = self._buffer[at + len(mark) : close].strip()
        self._take(close + 1)
        if mark != PARAMETER:
            self._argue("}" if self._names else "{}")
            self._state = "text"
            return True
        self._is_repeated = key in self._names
        self._argue_value((", " if self._names else "{") + json.dumps(key, ensure_ascii=False) + ": ")
        self._names.add(key)
        properties = self._schema.get("properties")
        self._types = types_of(properties.get(key) if isinstance(properties, dict) else None, self._schema)
        self._state, self._has_begun = "value", False
        return True

    def _step_value(self, is_end: bool) -> bool:
        at, length = self._end_of_value(is_end)
        if at < 0:
            if self._types <= _TEXT:
                self._grow_text(is_end)
            return False
        self._finish_value(self._take(at))
        self._take(length)
        self._state = "between"
        return True

    def _end_of_value(self, is_end: bool) -> tuple[int, int]:
        """Return where the value ends and the length of its end tag; -1 if more text is needed.

        An end tag ends it if a parameter or the end of the function follows; all else may be part of the value. Without an
        end tag the value ends at the first tag: at once if it then has the declared type, else at the end of the text.
        """
        at, mark = first_of(self._buffer, (END_PARAMETER, *_AROUND))
        if mark is None or (mark != END_PARAMETER and self._is_of_type(self._buffer[:at])):
            return at, 0
        first, tag = at, mark
        at = self._buffer.find(END_PARAMETER)
        while at >= 0:
            behind = self._buffer[at + len(END_PARAMETER) :].lstrip()
            if behind.startswith(_AROUND) or (is_end and not behind):
                return at, len(END_PARAMETER)
            if not is_end and any(around.startswith(behind) for around in _AROUND):
                return -1, 0
            at = self._buffer.find(END_PARAMETER, at + 1)
        return (first, len(tag) if tag == END_PARAMETER else 0) if is_end else (-1, 0)

    def _is_of_type(self, text: str) -> bool:
        return not self._types <= _TEXT and not isinstance(value_of(text.strip(), self._types), str)

    def _grow_text(self, is_end: bool) -> None:
        """Emit the certain part of a text value; a newline before the end tag is not part of it."""
        certain, _ = certain_until(self._buffer, (END_PARAMETER, *_AROUND), is_end=is_end)
        if certain and self._buffer[certain - 1] == "\n":
            certain -= 1
        if not certain:
            return
        text = self._take(certain)
        if not self._has_begun:
            text = text.removeprefix("\n")
            self._argue_value('"')
        self._has_begun = True
        self._argue_value(_inside(text))

    def _finish_value(self, text: str) -> None:
        if self._has_begun:
            self._argue_value(_inside(text.removesuffix("\n")) + '"')
            return
        text = text.removeprefix("\n").removesuffix("\n")
        self._argue_value(written(text if self._types <= _TEXT else value_of(text, self._types)))

    def _argue_value(self, text: str) -> None:
        """Emit a piece of a parameter; of two with one name the first counts."""
        if not self._is_repeated:
            self._argue(text)


def _inside(text: str) -> str:
    """Return text as a JSON string without the quotes."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
