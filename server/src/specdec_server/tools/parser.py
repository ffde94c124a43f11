"""The interface of parsers, and a common base class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from secrets import token_hex
from typing import ClassVar

from specdec_server.tools.events import CallArguments, CallStart, Event, Text
from specdec_server.tools.syntax import CallSyntax
from specdec_server.tools.tool import Tool


class OutputParser(ABC):
    """Splits a model's streamed text into events.

    The events of a text, with adjacent pieces of one kind joined, must not depend on how the text is split. Therefore a
    parser holds back text whose meaning later text can still change.
    """

    needs_special_tokens: ClassVar[bool] = False
    """Whether the format uses special tokens, which the text otherwise omits."""

    @abstractmethod
    def feed(self, text: str) -> list[Event]:
        """Process more text; return the events that are certain now."""

    @abstractmethod
    def end(self) -> list[Event]:
        """Return the events held back so far; no text follows."""


class ToolParser(OutputParser):
    """Finds tool calls in one format. Registered under the entry-point group `specdec.tool_parsers`.

    Args:
        tools: of the request.
    """

    template_marks: ClassVar[tuple[str, ...]] = ()
    """Strings that all occur in a chat template with this format; empty if templates do not identify it."""
    handles_reasoning: ClassVar[bool] = False
    """Whether the parser separates reasoning from content itself."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    @classmethod
    def fits(cls, template: str) -> int:
        """Return how well the format fits a chat template: the total length of its marks; 0 if one is missing."""
        if not all(mark in template for mark in cls.template_marks):
            return 0
        return sum(map(len, cls.template_marks))

    @classmethod
    def syntax(cls, template: str) -> CallSyntax | None:
        """Return the call syntax for calls forced by a grammar; None if no grammar can express it.

        Args:
            template: the chat template, for formats with several variants.
        """
        return None

    def call_id(self, name: str, index: int) -> str:
        """Return an id for a call."""
        return new_call_id()


class BufferedParser(ToolParser):
    """A state machine over the text that has not been parsed yet; subclasses implement `_step`.

    Text before the first call is content, except whitespace alone before a call; text after a call is dropped.
    """

    def __init__(self, tools: Sequence[Tool]) -> None:
        super().__init__(tools)
        self._buffer = ""
        self._blanks = ""
        self._has_text = False
        self._num_calls = 0
        self._events: list[Event] = []

    def feed(self, text: str) -> list[Event]:
        """Process more text; return the events that are certain now."""
        self._buffer += text
        return self._run(is_end=False)

    def end(self) -> list[Event]:
        """Return the events held back so far; no text follows."""
        events = self._run(is_end=True)
        if not self._num_calls and self._blanks:
            events.append(Text(self._blanks))
        return events

    @abstractmethod
    def _step(self, *, is_end: bool) -> bool:
        """Parse a part of the buffer; return whether parsing may continue."""

    def _run(self, *, is_end: bool) -> list[Event]:
        self._events = []
        while self._step(is_end=is_end):
            pass
        return self._events

    def _say(self, text: str) -> None:
        """Emit text as content."""
        if self._num_calls or not text:
            return
        if not self._has_text and not text.strip():
            self._blanks += text
            return
        self._has_text = True
        self._events.append(Text(self._blanks + text))
        self._blanks = ""

    def _start(self, name: str) -> None:
        """Start a call."""
        self._events.append(CallStart(self._num_calls, name))
        self._num_calls += 1

    def _argue(self, text: str) -> None:
        """Emit a piece of the arguments of the current call."""
        if text:
            self._events.append(CallArguments(self._num_calls - 1, text))

    def _say_until(self, marks: Sequence[str], *, is_end: bool) -> str | None:
        """Emit the buffer as content up to the first of `marks`, which stays in the buffer; return that mark or None."""
        at, mark = certain_until(self._buffer, marks, is_end=is_end)
        self._say(self._take(at))
        return mark

    def _take(self, count: int) -> str:
        """Remove characters from the front of the buffer and return them."""
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def _skip_blanks(self) -> str:
        return self._take(len(self._buffer) - len(self._buffer.lstrip()))


def new_call_id() -> str:
    """Return an id for a call if the format does not require its own."""
    return f"call_{token_hex(12)}"


def first_of(text: str, marks: Sequence[str]) -> tuple[int, str | None]:
    """Return the position of the first of `marks`, and the mark; of two at one position the longer one."""
    found = [(at, -len(mark), mark) for mark in marks if (at := text.find(mark)) >= 0]
    if not found:
        return -1, None
    at, _, mark = min(found)
    return at, mark


def certain_until(text: str, marks: Sequence[str], *, is_end: bool) -> tuple[int, str | None]:
    """Return how much of a text is certain to stand before the first of `marks`, and that mark if it is there.

    Args:
        text: what has not been parsed yet.
        marks: one of which may have begun at the end of the text.
        is_end: whether no text follows.
    """
    at, mark = first_of(text, marks)
    if mark is None:
        at = len(text) if is_end else len(text) - num_held(text, marks)
    return at, mark


def num_held(text: str, marks: Sequence[str]) -> int:
    """Return the length of the longest suffix of a text that is a proper prefix of one of `marks`."""
    longest = max(map(len, marks), default=1) - 1
    for length in range(min(longest, len(text)), 0, -1):
        tail = text[-length:]
        if any(len(mark) > length and mark.startswith(tail) for mark in marks):
            return length
    return 0
