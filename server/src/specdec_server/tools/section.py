"""Formats with a mark before each call, one before its arguments and one behind them: DeepSeek's and Kimi's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from specdec_server.tools.parser import BufferedParser, first_of, num_held
from specdec_server.tools.syntax import CallSyntax
from specdec_server.tools.tool import Tool

_FENCE = re.compile(r"\s*```\w*\s*")
_TAIL = re.compile(r"[\s`]*\Z")


def _mark(words: str) -> str:
    """Return a mark as DeepSeek spells it, with a wide bar and a low block for blanks."""
    return "<\uff5c" + words.replace(" ", "\u2581") + "\uff5c>"


class SectionParser(BufferedParser):
    """Finds calls between marks."""

    section: ClassVar[str]
    """Before the first call; may be missing."""
    begin: ClassVar[str]
    separator: ClassVar[str]
    """Between name and arguments."""
    close: ClassVar[str]

    def __init__(self, tools: Sequence[Tool]) -> None:
        super().__init__(tools)
        self._place = "text"

    def _step(self, *, is_end: bool) -> bool:
        if self._place == "text":
            mark = self._say_until((self.section, self.begin), is_end=is_end)
            if mark is None:
                return False
            self._take(len(mark))
            if mark == self.section:
                return True
            self._place = "head"
        return self._step_head(is_end) if self._place == "head" else self._step_arguments(is_end)

    def _step_head(self, is_end: bool) -> bool:
        at, mark = first_of(self._buffer, (self.separator, self.close))
        if mark is None:
            if is_end:
                self._say(self.begin + self._take(len(self._buffer)))
            return False
        if mark == self.close:
            self._say(self.begin + self._take(at + len(mark)))
            self._place = "text"
            return True
        name, length = self._name_of(self._buffer[:at], self._buffer[at + len(mark) :], is_end)
        if name is None:
            return False
        self._take(at + len(mark) + length)
        self._start(name)
        self._place = "arguments"
        return True

    def _name_of(self, head: str, rest: str, is_end: bool) -> tuple[str | None, int]:
        """Return the name, and the length of what stands before the arguments in the rest; None if more text is needed."""
        return head.strip(), 0

    def _step_arguments(self, is_end: bool) -> bool:
        at, mark = first_of(self._buffer, (self.close,))
        if mark is not None:
            self._argue(_TAIL.sub("", self._take(at)))
            self._take(len(mark))
            self._place = "text"
            return True
        if is_end:
            self._argue(_TAIL.sub("", self._take(len(self._buffer))))
            return False
        certain = self._buffer[: len(self._buffer) - num_held(self._buffer, (self.close,))]
        self._argue(self._take(len(_TAIL.sub("", certain))))
        return False


class DeepSeekParser(SectionParser):
    """DeepSeek V3 and R1, which write arguments as a block of code, and V3.1, which does not."""

    needs_special_tokens: ClassVar[bool] = True
    template_marks: ClassVar[tuple[str, ...]] = (_mark("tool call begin"),)
    section: ClassVar[str] = _mark("tool calls begin")
    begin: ClassVar[str] = _mark("tool call begin")
    separator: ClassVar[str] = _mark("tool sep")
    close: ClassVar[str] = _mark("tool call end")
    last: ClassVar[str] = _mark("tool calls end")

    @classmethod
    def syntax(cls, template: str) -> CallSyntax:
        """Return how calls are spelled by the template's generation of models."""
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

    @classmethod
    def syntax(cls, template: str) -> CallSyntax:
        """Return how calls are spelled; each is the first of its message, since a grammar does not count."""
        return CallSyntax(
            before=f"{cls.begin}functions.{{name}}:0{cls.separator}",
            behind=cls.close,
            first=cls.section,
            last="<|tool_calls_section_end|>",
            separator=None,
            trigger=cls.section,
        )

    def call_id(self, name: str, index: int) -> str:
        """Return an id as the model writes it."""
        return f"functions.{name}:{index}"

    def _name_of(self, head: str, rest: str, is_end: bool) -> tuple[str | None, int]:
        return head.strip().removeprefix("functions.").partition(":")[0], 0
