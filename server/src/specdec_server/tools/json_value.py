"""Incremental detection of the end of a JSON value, and of the mark that follows it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

from specdec_server.tools.parser import certain_until, first_of

_PAIRS = {"{": "}", "[": "]"}
_BLANKS = " \t\r\n"
_SCALAR = frozenset("+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


class JsonValue:
    """Tracks one value without leading whitespace."""

    def __init__(self) -> None:
        self.is_done = False
        self.is_wrong = False
        """Whether the text cannot be the beginning of a value."""
        self.text = ""
        """Text of the value so far."""
        self._open: list[str] = []
        self.is_in_string = False
        self._is_escaped = self._needs_key = False

    @property
    def kind(self) -> str:
        """`nested`, `string` or `scalar`; empty before the first character."""
        return {"": "", "{": "nested", "[": "nested", '"': "string"}.get(self.text[:1], "scalar")

    def take(self, text: str, start: int = 0) -> int:
        """Consume text from a position on; return the position after the characters that belong to the value."""
        for place in range(start, len(text)):
            if self.is_done or self.is_wrong or not self._belongs(text[place]):
                self.text += text[start:place]
                return place
            if not self.text:
                self.text, start = text[place], place + 1
        self.text += text[start:]
        return len(text)

    def _belongs(self, char: str) -> bool:
        """Return whether a character is part of the value."""
        if not self.text:
            return self._begins(char)
        if self.is_in_string:
            self._scan_string(char)
            return True
        if not self._open:
            self.is_done = char not in _SCALAR
            return not self.is_done
        if char in _BLANKS:
            return True
        if self._needs_key:
            self._needs_key = False
            if char not in '"}':
                self.is_wrong = True
                return False
        if char == '"':
            self.is_in_string = True
        elif char in _PAIRS:
            self._nest(char)
        elif char in "}]":
            if self._open[-1] != char:
                self.is_wrong = True
                return False
            self._open.pop()
            self.is_done = not self._open
        return True

    def _begins(self, char: str) -> bool:
        if char in _PAIRS:
            self._nest(char)
        elif char == '"':
            self.is_in_string = True
        elif char not in _SCALAR:
            self.is_wrong = True
        return not self.is_wrong

    def _nest(self, char: str) -> None:
        self._open.append(_PAIRS[char])
        self._needs_key = char == "{"

    def _scan_string(self, char: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif char == "\\":
            self._is_escaped = True
        elif char == '"':
            self.is_in_string = False
            self.is_done = not self._open


def end_of_value(
    value: JsonValue, text: str, marks: Sequence[str], *, is_end: bool
) -> tuple[int, str | None]:
    """Return where the text that belongs to a value ends, and the mark there.

    A mark within a string is part of the value, unless the value then does not end: a string that is not closed does not
    hide the rest of the message.

    Args:
        value: its beginning.
        text: what follows.
        marks: that may end it.
        is_end: whether no text follows.

    Returns:
        The position, and the mark; None if more text is needed, or if there is no mark and no more text.
    """
    first, mark = at, found = certain_until(text, marks, is_end=is_end)
    if mark is None:
        return first, None
    probe, place = deepcopy(value), 0
    while found is not None:
        probe.take(text[place:at])
        if not probe.is_in_string or probe.is_wrong:
            return (at, found) if probe.is_done else (first, mark)
        probe.take(found)
        place = at + len(found)
        behind, found = first_of(text[place:], marks)
        at = place + behind
    return (first, mark) if is_end else (first, None)
