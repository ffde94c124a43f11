"""Calls in Python syntax, `[f(x=1), g(y="z")]`: Llama 3.2 and 4, and others."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from specdec.config import notice
from specdec_server.tools.json_writing import written
from specdec_server.tools.parser import BufferedParser
from specdec_server.tools.tool import Tool

_MARKS = ("<|python_start|>", "<|python_tag|>")
_HEAD = re.compile(r"\s*\[\s*[A-Za-z_][\w.]*\s*\(")
_MAY_BE_HEAD = re.compile(r"\s*(\[\s*([A-Za-z_][\w.]*\s*)?)?")
_OPENING, _CLOSING = "([{", ")]}"


class PythonicParser(BufferedParser):
    """Finds calls in a message that is a list of calls; emits each call when it is complete."""

    needs_special_tokens: ClassVar[bool] = True

    def __init__(self, tools: Sequence[Tool]) -> None:
        super().__init__(tools)
        self._state = "start"
        self._raw = ""
        """The list read so far, while it contains no valid call."""

    def _step(self, *, is_end: bool) -> bool:
        if self._state == "start":
            return self._step_start(is_end)
        if self._state == "text":
            self._say(self._take(len(self._buffer)))
            return False
        return self._step_call(is_end)

    def _step_start(self, is_end: bool) -> bool:
        stripped = self._buffer.lstrip()
        for mark in _MARKS:
            if stripped.startswith(mark):
                self._buffer = stripped[len(mark) :]
                return True
        found = _HEAD.match(self._buffer)
        if found is not None:
            self._raw = self._take(self._buffer.index("[") + 1)
            self._state = "list"
            return True
        may_be = _MAY_BE_HEAD.fullmatch(self._buffer) or any(mark.startswith(stripped) for mark in _MARKS)
        if is_end or not may_be:
            self._state = "text"
            return True
        return False

    def _step_call(self, is_end: bool) -> bool:
        """Read one call up to and including the following comma or bracket."""
        end = _end_of_item(self._buffer)
        if end < 0:
            if is_end:
                self._raw += self._take(len(self._buffer))
                self._give_up()
            return False
        call, sign = self._take(end), self._take(1)
        self._raw += call + sign
        found = _call_of(call)
        if found is not None:
            self._start(found[0])
            self._argue(found[1])
        elif call.strip():
            notice(
                "tools:pythonic", "a call of a tool is left out: it is no Python call whose values have names"
            )
        if sign == "]":
            self._state = "text"
            self._give_up()
        return True

    def _give_up(self) -> None:
        """Emit the list as content if it contains no valid call."""
        self._say(self._raw)
        self._raw = ""


class Llama4PythonicParser(PythonicParser):
    """Llama 4, which writes markers around the list."""

    template_marks: ClassVar[tuple[str, ...]] = ("<|python_start|>",)


def _end_of_item(text: str) -> int:
    """Return the position of the comma or bracket that ends a list item; -1 if it has not arrived."""
    depth, quote, is_escaped = 0, "", False
    for place, char in enumerate(text):
        if quote:
            if is_escaped:
                is_escaped = False
            elif char == "\\":
                is_escaped = True
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in _OPENING:
            depth += 1
        elif not depth and char in ",]":
            return place
        elif char in _CLOSING:
            depth -= 1
    return -1


def _call_of(text: str) -> tuple[str, str] | None:
    """Return the name and the JSON arguments of a call; None if it is not a call with keyword arguments only."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
        if not isinstance(node, ast.Call) or node.args or not isinstance(node.func, ast.Name | ast.Attribute):
            return None
        names = [keyword.arg for keyword in node.keywords]
        if None in names or len(set(names)) < len(names):
            return None
        arguments = {keyword.arg: _value_of(keyword.value) for keyword in node.keywords}
        return ast.unparse(node.func), written(arguments)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return None


def _value_of(node: ast.expr) -> Any:
    """Return the value of an expression; JSON's constants `true`, `false` and `null` are accepted."""
    if isinstance(node, ast.Name) and node.id in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return [_value_of(element) for element in node.elts]
    if isinstance(node, ast.Dict):
        return {
            _value_of(key) if key else None: _value_of(value)
            for key, value in zip(node.keys, node.values, strict=True)
        }
    return ast.literal_eval(node)
