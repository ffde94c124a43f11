"""Formats with markers before each call, before its arguments and after them: DeepSeek's and Kimi's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from typing import ClassVar

from specdec_server.tools.json_value import JsonValue, end_of_value
from specdec_server.tools.parser import BufferedParser, first_of
from specdec_server.tools.syntax import CallSyntax
from specdec_server.tools.tool import Tool

_FENCE = re.compile(r"\s*```\w*\s*")
_TAIL = re.compile(r"[\s`]*\Z")


def _mark(words: str) -> str:
    """Return a marker in DeepSeek's spelling, with fullwidth bars and with lower blocks for spaces."""
    return "<\uff5c" + words.replace(" ", "\u2581") + "\uff5c>"


class SectionParser(BufferedParser):
    """Finds calls between markers."""

    section: ClassVar[str]
    """Marker before the first call; may be missing."""
    begin: ClassVar[str]
    separator: ClassVar[str]
    """Marker between name and arguments."""
    close: ClassVar[str]
    last: ClassVar[str]
    """Marker after the last call; may be missing."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        super().__init__(tools)
        self._state = "text"
        self._value = JsonValue()

    def _step(self, *, is_end: bool) -> bool:
        if self._state == "text":
            mark = self._say_until((self.section, self.begin, self.last), is_end=is_end)
            if mark is None:
                return False
            self._take(len(mark))
            self._state = {self.section: "section", self.begin: "head"}.get(mark, "text")
            return True
        if self._state == "section":
            return self._step_section(is_end)
        return self._step_head(is_end) if self._state == "head" else self._step_arguments(is_end)

    def _step_section(self, is_end: bool) -> bool:
        """Skip to the first call; the text of a section without calls is content."""
        at, mark = first_of(self._buffer, (self.begin, self.last))
        if mark is None and not is_end:
            return False
        text = self._take(len(self._buffer) if mark is None else at)
        if mark != self.begin:
            self._say(text)
        self._take(len(mark or ""))
        self._state = "head" if mark == self.begin else "text"
        return mark is not None

    def _step_head(self, is_end: bool) -> bool:
        at, mark = first_of(self._buffer, (self.separator, self.close))
        if mark is None:
            if is_end:
                self._say(self.begin + self._take(len(self._buffer)))
            return False
        if mark == self.close:
            self._say(self.begin + self._take(at + len(mark)))
            self._state = "text"
            return True
        name, length = self._name_of(self._buffer[:at], self._buffer[at + len(mark) :], is_end)
        if name is None:
            return False
        self._take(at + len(mark) + length)
        self._start(name)
        self._state, self._value = "arguments", JsonValue()
        return True

    def _name_of(self, head: str, rest: str, is_end: bool) -> tuple[str | None, int]:
        """Return the name, and the offset of the arguments in the rest; the name is None if more text is needed."""
        return head.strip(), 0

    def _step_arguments(self, is_end: bool) -> bool:
        at, mark = end_of_value(self._value, self._buffer, (self.close, self.last), is_end=is_end)
        text = _TAIL.sub("", self._buffer[:at])
        self._value.take(text)
        if self._value.is_in_string:  # blanks and fences are the model's own there
            self._value.take(self._buffer[len(text) : at])
            text = self._buffer[:at]
        self._argue(text)
        if mark is None and not is_end:
            self._take(len(text))
            return False
        self._take(at + len(mark or ""))
        self._state = "text"
        return mark is not None


class DeepSeekParser(SectionParser):
    """DeepSeek V3 and R1, which write arguments as a code block, and V3.1, which does not."""

    needs_special_tokens: ClassVar[bool] = True
    template_marks: ClassVar[tuple[str, ...]] = (_mark("tool call begin"),)
    section: ClassVar[str] = _mark("tool calls begin")
    begin: ClassVar[str] = _mark("tool call begin")
    separator: ClassVar[str] = _mark("tool sep")
    close: ClassVar[str] = _mark("tool call end")
    last: ClassVar[str] = _mark("tool calls end")

    @classmethod
    def syntax(cls, template: str) -> CallSyntax:
        """Return the call syntax of the template's model generation."""
        before, behind = f"{cls.begin}function{cls.separator}{{name}}\n```json\n", f"\n```{cls.close}"
        if "```json" not in template:
            before, behind = f"{cls.begin}{{name}}{cls.separator}", cls.close
        return CallSyntax(
            before=before,
            behind=behind,
            first=cls.section,
            last=cls.last,
            separator="\n" if "```json" in template else "",
            trigger=cls.section,
        )

    def _name_of(self, head: str, rest: str, is_end: bool) -> tuple[str | None, int]:
        if head.strip() != "function":
            return head.strip(), 0
        name, newline, code = rest.partition("\n")
        if not newline:
            return None, 0
        brace = code.find("{")
        if brace < 0 and not is_end and self.close not in code:
            return None, 0
        is_fenced = brace >= 0 and _FENCE.fullmatch(code, 0, brace) is not None
        return name.strip(), len(name) + 1 + (brace if is_fenced else 0)


class KimiParser(SectionParser):
    """Kimi K2."""

    needs_special_tokens: ClassVar[bool] = True
    template_marks: ClassVar[tuple[str, ...]] = ("<|tool_call_argument_begin|>",)
    section: ClassVar[str] = "<|tool_calls_section_begin|>"
    begin: ClassVar[str] = "<|tool_call_begin|>"
    separator: ClassVar[str] = "<|tool_call_argument_begin|>"
    close: ClassVar[str] = "<|tool_call_end|>"
    last: ClassVar[str] = "<|tool_calls_section_end|>"

    def __init__(self, tools: Sequence[Tool]) -> None:
        super().__init__(tools)
        self._ids: list[str] = []

    @classmethod
    def syntax(cls, template: str) -> CallSyntax:
        """Return the call syntax; every call has index 0 in its message, since a grammar cannot count."""
        return CallSyntax(
            before=f"{cls.begin}functions.{{name}}:0{cls.separator}",
            behind=cls.close,
            first=cls.section,
            last=cls.last,
            separator=None,
            trigger=cls.section,
        )

    def call_id(self, name: str, index: int) -> str:
        """Return the id that the model wrote, since its later calls continue the numbering."""
        return self._ids[index] if index < len(self._ids) else f"functions.{name}:{index}"

    def _name_of(self, head: str, rest: str, is_end: bool) -> tuple[str | None, int]:
        written = head.strip()
        name, _, number = written.removeprefix("functions.").partition(":")
        if not number.isdecimal() or written in self._ids:
            free = (f"functions.{name}:{place}" for place in count(len(self._ids)))
            written = next(call_id for call_id in free if call_id not in self._ids)
        self._ids.append(written)
        return name, 0
