"""The interface of parsers, and what most of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from secrets import token_hex
from typing import ClassVar

from specdec_server.tools.events import CallArguments, CallStart, Event, Text
from specdec_server.tools.syntax import CallSyntax
from specdec_server.tools.tool import Tool


class OutputParser(ABC):
    """Splits a model's text into events while it arrives.

    The events of a text, pieces of one kind joined, must not depend on how the text is cut: a parser holds back whatever
    later text may still give another meaning.
    """

    needs_special_tokens: ClassVar[bool] = False
    """Whether the format is written with special tokens, which are left out of text otherwise."""

    @abstractmethod
    def feed(self, text: str) -> list[Event]:
        """Take in more text; return what is certain now."""

    @abstractmethod
    def end(self) -> list[Event]:
        """Return what was held back; no text follows."""


class ToolParser(OutputParser):
    """Finds calls of tools in one format. Registered under the entry-point group `specdec.tool_parsers`.

    Args:
        tools: of the request.
    """

    template_marks: ClassVar[tuple[str, ...]] = ()
    """What a chat template that writes this format holds, all of it; empty where templates do not give it away."""
    handles_reasoning: ClassVar[bool] = False
    """Whether the parser tells reasoning from content itself."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    @classmethod
    def fits(cls, template: str) -> int:
        """Return how well the format fits a chat template: the length of its marks there; 0 if one is missing."""
        if not all(mark in template for mark in cls.template_marks):
            return 0
        return sum(map(len, cls.template_marks))

    @classmethod
    def syntax(cls, template: str) -> CallSyntax | None:
        """Return how calls are spelled, for calls that are forced by a grammar; None where no grammar spells them.

        Args:
            template: the chat template, for formats that have several spellings.
        """
        return None

    def call_id(self, name: str, index: int) -> str:
        """Return an id for a call."""
        return new_call_id()


class BufferedParser(ToolParser):
    """A state machine over the text that has not been understood yet; subclasses implement `_step`.

    Text before the first call is content, without blanks if there is nothing else; text behind a call is left out.
    """

    def __init__(self, tools: Sequence[Tool]) -> None:
        super().__init__(tools)
        self._buffer = ""
        self._blanks = ""
        self._has_text = False
        self._num_calls = 0
        self._events: list[Event] = []

    def feed(self, text: str) -> list[Event]:
        """Take in more text; return what is certain now."""
        self._buffer += text
        return self._run(is_end=False)

    def end(self) -> list[Event]:
        """Return what was held back; no text follows."""
        events = self._run(is_end=True)
        if not self._num_calls and self._blanks:
            events.append(Text(self._blanks))
        return events

    @abstractmethod
    def _step(self, *, is_end: bool) -> bool:
        """Understand some of the buffer; return whether there may be more to understand."""

    def _run(self, *, is_end: bool) -> list[Event]:
        self._events = []
        while self._step(is_end=is_end):
            pass
        return self._events

    def _say(self, text: str) -> None:
        """Give text as content."""
        if self._num_calls or not text:
            return
        if not self._has_text and not text.strip():
            self._blanks += text
            return
        self._has_text = True
        self._events.append(Text(self._blanks + text))
        self._blanks = ""

    def _start(self, name: str) -> None:
        """Begin a call."""
        self._events.append(CallStart(self._num_calls, name))
        self._num_calls += 1

    def _argue(self, text: str) -> None:
        """Give a piece of the arguments of the call that began last."""
        if text:
            self._events.append(CallArguments(self._num_calls - 1, text))

    def _say_until(self, marks: Sequence[str], *, is_end: bool) -> str | None:
        """Give the buffer as content up to the first of some marks, which stays; return that mark, if it is there."""
        at, mark = first_of(self._buffer, marks)
        if mark is None:
            at = len(self._buffer) if is_end else len(self._buffer) - num_held(self._buffer, marks)
        self._say(self._take(at))
        return mark

    def _take(self, count: int) -> str:
        """Remove characters from the front of the buffer, and return them."""
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def _skip_blanks(self) -> str:
        return self._take(len(self._buffer) - len(self._buffer.lstrip()))


def new_call_id() -> str:
    """Return an id for a call, where the format demands none."""
    return f"call_{token_hex(12)}"


def first_of(text: str, marks: Sequence[str]) -> tuple[int, str | None]:
    """Return where the first of some marks is, and which; of two at one position the longer one."""
    found = [(at, -len(mark), mark) for mark in marks if (at := text.find(mark)) >= 0]
    if not found:
        return -1, None
    at, _, mark = min(found)
    return at, mark


def num_held(text: str, marks: Sequence[str]) -> int:
    """Return the length of the longest end of a text that begins one of some marks without being whole."""
    longest = max(map(len, marks), default=1) - 1
    for length in range(min(longest, len(text)), 0, -1):
        tail = text[-length:]
        if any(len(mark) > length and mark.startswith(tail) for mark in marks):
            return length
    return 0
