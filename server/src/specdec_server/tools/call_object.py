"""Incremental parser of one call as a JSON object, such as `{"name": "f", "arguments": {"x": 1}}`."""

from __future__ import annotations

from contextlib import suppress

from specdec_server.tools.json_value import JsonValue
from specdec_server.tools.json_writing import read_json

_BLANKS = " \t\r\n"
_NAME = "name"
_ARGUMENTS = ("arguments", "parameters")
_NUM_CHECKED = 2
"""Valid characters of arguments that are required before an object counts as a call; `{` alone may start anything."""


class CallObject:
    """Reads one object.

    Name and arguments are returned as soon as they are certain, in either order. If one of them occurs twice, the first
    counts; other keys are skipped.

    Args:
        needs_arguments: whether an object without arguments is not a call.
    """

    def __init__(self, *, needs_arguments: bool) -> None:
        self._needs_arguments = needs_arguments
        self.is_done = False
        self.is_wrong = False
        """Whether the text is not a call or not JSON."""
        self.name: str | None = None
        """The name, once the object counts as a call."""
        self._found_name: str | None = None
        self._state = "object"
        self._key = ""
        self._value = JsonValue()
        self._arguments: JsonValue | None = None
        self._num_given = 0
        self._has_ended = False

    @property
    def has_arguments(self) -> bool:
        """Whether the arguments are complete."""
        return self._arguments is not None and self._arguments.is_done

    def take(self, text: str) -> int:
        """Read text; return the number of characters that belong to the object."""
        place = 0
        while place < len(text) and not (self.is_done or self.is_wrong):
            if self._state in ("key", "value"):
                place = self._take_value(text, place)
            elif text[place] in _BLANKS:
                place += 1
            else:
                place += self._take_sign(text[place])
        return place

    def take_arguments(self) -> str:
        """Return the arguments that are new since the last call; empty until the name is known."""
        value = self._arguments
        if self._found_name is None or value is None or self._has_ended:
            if self.is_done and self._found_name is not None and value is None and not self._needs_arguments:
                self.name, self._needs_arguments = self._found_name, True
                return "{}"
            return ""
        if value.kind != "nested":
            return self._whole(value) if value.is_done else ""
        if not value.is_done and len("".join(value.text.split())) < _NUM_CHECKED:
            return ""
        self.name = self._found_name
        new, self._num_given = value.text[self._num_given :], len(value.text)
        return new

    def _whole(self, value: JsonValue) -> str:
        """Return arguments that are not an object; some models write the object as a string."""
        self._has_ended = True
        self.name = self._found_name
        if value.text == "null":
            return "{}"
        with suppress(ValueError):
            inner = read_json(value.text)
            if isinstance(inner, str) and isinstance(read_json(inner), dict):
                return inner
        return value.text

    def _take_sign(self, char: str) -> int:
        """Process one character between keys and values; return 1 if it is consumed, else 0."""
        if self._state == "object" and char == "{":
            self._state = "first key"
        elif self._state == "colon" and char == ":":
            self._state, self._value = "value", JsonValue()
            if self._key in _ARGUMENTS and self._arguments is None:
                self._arguments = self._value
        elif self._state == "comma" and char == ",":
            self._state = "next key"
        elif self._state in ("first key", "comma") and char == "}":
            self.is_done = True
            self.is_wrong = self._found_name is None or (self._needs_arguments and self._arguments is None)
        elif self._state in ("first key", "next key") and char == '"':
            self._state, self._value = "key", JsonValue()
            return 0
        else:
            self.is_wrong = True
            return 0
        return 1

    def _take_value(self, text: str, place: int) -> int:
        if self._state == "value" and not self._value.text:
            place += len(text[place:]) - len(text[place:].lstrip(_BLANKS))
        place = self._value.take(text, place)
        self.is_wrong = self._value.is_wrong
        if self._value.is_done:
            self._finish_value()
        return place

    def _finish_value(self) -> None:
        if self._state == "key":
            key = _loaded(self._value.text)
            self._key, self.is_wrong = key or "", key is None
            self._state = "colon"
            return
        if self._key == _NAME and self._found_name is None:
            self._found_name = _loaded(self._value.text)
            self.is_wrong = not self._found_name
        self._state = "comma"


def _loaded(text: str) -> str | None:
    """Return the string in JSON text; None if it is not a string."""
    with suppress(ValueError):
        value = read_json(text)
        if isinstance(value, str):
            value.encode()  # an unpaired surrogate is no name
            return value
    return None
