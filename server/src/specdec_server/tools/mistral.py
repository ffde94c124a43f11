"""Mistral's formats.

`[TOOL_CALLS] [{"name": ..., "arguments": ...}, ...]`, and since its eleventh tokenizer `[TOOL_CALLS]name{...}` or
`[TOOL_CALLS]name[ARGS]{...}` for each call.
"""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Sequence
from typing import ClassVar

from specdec_server.tools.json_value import JsonValue
from specdec_server.tools.object_parser import ObjectParser
from specdec_server.tools.syntax import CallSyntax
from specdec_server.tools.tool import Tool

MARK = "[TOOL_CALLS]"
_HEAD = re.compile(r"\s*([\w.\-]+)\s*(?:\[CALL_ID\][\w\-]*\s*)?(?:\[ARGS\]\s*)?(?=\{)")
"""A name, up to the start of its arguments."""


class MistralParser(ObjectParser):
    """Finds calls after the marker, in both formats."""

    needs_special_tokens: ClassVar[bool] = True
    template_marks: ClassVar[tuple[str, ...]] = (MARK,)

    def __init__(self, tools: Sequence[Tool]) -> None:
        super().__init__(tools)
        self._state = "text"
        self._arguments = JsonValue()
        self._num_given = 0

    @classmethod
    def syntax(cls, template: str) -> CallSyntax:
        """Return the call syntax of the template's model generation."""
        if "[ARGS]" in template:
            return CallSyntax(before=f"{MARK}{{name}}[ARGS]", behind="", separator="", trigger=MARK)
        return CallSyntax(
            before='{"name": "{name}", "arguments": ',
            behind="}",
            first=f"{MARK} [",
            last="]",
            separator=", ",
            trigger=MARK,
        )

    def call_id(self, name: str, index: int) -> str:
        """Return an id as required by Mistral's chat templates: nine letters and digits."""
        return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))

    def _step(self, *, is_end: bool) -> bool:
        if self._state == "text":
            if self._say_until((MARK,), is_end=is_end) is None:
                return False
            self._take(len(MARK))
            self._state = "head"
        return {"head": self._step_head, "list": self._step_list, "arguments": self._step_arguments}[
            self._state
        ](is_end)

    def _step_head(self, is_end: bool) -> bool:
        self._skip_blanks()
        if self._buffer.startswith("["):
            self._take(1)
            self._state = "list"
            return True
        brace, mark = self._buffer.find("{"), self._buffer.find(MARK)
        if brace >= 0 and not 0 <= mark < brace:
            found = _HEAD.match(self._buffer)
            if found is None:
                is_list = self._buffer[:brace].rstrip().endswith("[")
                self._say(self._take(self._buffer.rindex("[", 0, brace) if is_list else brace))
                self._state = "head" if is_list else "text"
                return True
            self._take(found.end())
            self._start(found[1])
            self._arguments, self._num_given, self._state = JsonValue(), 0, "arguments"
            return True
        if mark >= 0 or is_end:
            self._state = "text"
            self._say(self._take(mark if mark >= 0 else len(self._buffer)))
        return mark >= 0

    def _step_arguments(self, is_end: bool) -> bool:
        value = self._arguments
        self._take(value.take(self._buffer))
        self._argue(value.text[self._num_given :])
        self._num_given = len(value.text)
        if value.is_done or value.is_wrong:
            self._state = "text"
        return bool(self._buffer)

    def _step_list(self, is_end: bool) -> bool:
        if self._call is None:
            self._buffer = self._buffer.lstrip(" \t\r\n,")
            if not self._buffer:
                return False
            if self._buffer.startswith("]"):
                self._take(1)
                self._state = "text"
                return True
            self._open_call("[", needs_arguments=False)
        if self._read_call(is_end=is_end).is_wrong:
            self._state = "text"
        return bool(self._buffer)
