"""Harmony, the format of gpt-oss: messages in channels, calls as messages to functions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from specdec_server.tools.events import Reasoning, Text
from specdec_server.tools.json_value import JsonValue, end_of_value
from specdec_server.tools.parser import BufferedParser, certain_until, first_of
from specdec_server.tools.syntax import CallSyntax
from specdec_server.tools.tool import Tool

START = "<|start|>"
CHANNEL = "<|channel|>"
MESSAGE = "<|message|>"
_ENDS = ("<|end|>", "<|return|>", "<|call|>", START)
_RECIPIENT = re.compile(r"to=(?:functions\.)?([\w.\-]+)")
_TO_ITSELF = "to=assistant"
"""Recipient of tool results; a model that writes this itself makes no call."""

ANALYSIS: dict[str, Any] = {
    "type": "optional",
    "content": {
        "type": "tag",
        "begin": f"{CHANNEL}analysis{MESSAGE}",
        "content": {"type": "any_text", "excludes": ["<|end|>"]},
        "end": f"<|end|>{START}assistant",
    },
}
"""Reasoning as a structural-tag format."""


class HarmonyParser(BufferedParser):
    """Separates channels.

    `analysis` is reasoning, messages to a function are calls, messages to the model itself are hidden, all others are content.
    """

    needs_special_tokens: ClassVar[bool] = True
    handles_reasoning: ClassVar[bool] = True
    template_marks: ClassVar[tuple[str, ...]] = (CHANNEL, "to=functions.")

    def __init__(self, tools: Sequence[Tool]) -> None:
        super().__init__(tools)
        self._state = "head"
        self._kind = "content"
        self._value = JsonValue()

    @classmethod
    def syntax(cls, template: str) -> CallSyntax:
        """Return the call syntax; the end of a call is the end of the text."""
        return CallSyntax(
            before=f"{CHANNEL}commentary to=functions.{{name}} <|constrain|>json{MESSAGE}",
            behind="",
            separator=None,
        )

    def _step(self, *, is_end: bool) -> bool:
        return self._step_head(is_end) if self._state == "head" else self._step_body(is_end)

    def _step_head(self, is_end: bool) -> bool:
        """Read up to the body of a message. Text without a preceding channel is content."""
        at, mark = first_of(self._buffer, (MESSAGE,))
        if mark is None:
            may_be = self._buffer.lstrip()[:1] in ("", "<") or self._buffer.startswith((" to=", "assistant"))
            if is_end or not (may_be or any(m.startswith(self._buffer) for m in (" to=", "assistant"))):
                is_head = CHANNEL in self._buffer or START in self._buffer
                if is_head and is_end:
                    self._take(len(self._buffer))
                    return False
                self._state, self._kind = "body", "content"
                return bool(self._buffer)
            return False
        head = self._take(at + len(mark))
        recipient = _RECIPIENT.search(head)
        if recipient is not None and recipient[0] == _TO_ITSELF:
            self._kind = "hidden"
        elif recipient is not None:
            self._kind, self._value = "call", JsonValue()
            self._start(recipient[1])
        else:
            self._kind = "reasoning" if f"{CHANNEL}analysis" in head else "content"
        self._state = "body"
        return True

    def _step_body(self, is_end: bool) -> bool:
        if self._kind == "call":
            return self._step_arguments(is_end)
        at, mark = certain_until(self._buffer, _ENDS, is_end=is_end)
        text = self._take(at)
        if self._kind == "reasoning":
            if text:
                self._events.append(Reasoning(text))
        elif self._kind == "content":
            self._say(text)
        if mark is not None:
            self._take(len(mark))
            self._state = "head"
        return mark is not None

    def _step_arguments(self, is_end: bool) -> bool:
        at, mark = end_of_value(self._value, self._buffer, _ENDS, is_end=is_end)
        text = self._take(at)
        self._value.take(text)
        self._argue(text)
        if mark is not None:
            self._take(len(mark))
            self._state = "head"
        return mark is not None

    def _say(self, text: str) -> None:
        """Emit text as content, also after calls, since its channel marks it as content for the user."""
        if self._num_calls and text:
            self._events.append(Text(text))
        super()._say(text)
