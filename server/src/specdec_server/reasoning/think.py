"""Reasoning between two markers."""

from __future__ import annotations

from typing import Any, ClassVar

from specdec_server.reasoning.parser import ReasoningParser
from specdec_server.tools.events import Event, Reasoning, Text
from specdec_server.tools.parser import num_held


class ThinkParser(ReasoningParser):
    """`<think>` and `</think>`: Qwen 3, DeepSeek, GLM and others. Whitespace around the reasoning is removed.

    The end of the prompt determines whether reasoning has already started or is already closed.
    """

    begin: ClassVar[str] = "<think>"
    close: ClassVar[str] = "</think>"
    is_open: ClassVar[bool] = False
    """Whether text without the start marker is reasoning if the prompt does not decide it."""

    def __init__(self, prompt: str) -> None:
        super().__init__(prompt)
        self._buffer = ""
        self._has_reasoning = False
        ends = prompt.rstrip()
        self._state = "behind" if ends.endswith(self.close) else "start"
        self._is_open = self.is_open or ends.endswith(self.begin)

    @classmethod
    def markers(cls) -> dict[str, Any]:
        """Return the two markers, and whether the first one may be missing."""
        return {
            "reasoning_start_str": cls.begin, "reasoning_end_str": cls.close, "reasoning_close_str": cls.close,
            "is_always_open": cls.is_open,
        }  # fmt: skip

    def prefix(self) -> dict[str, Any] | None:
        """Return the structural-tag format of the reasoning."""
        if self._state == "behind":
            return None
        tag = {
            "type": "tag",
            "begin": "" if self._is_open else self.begin,
            "content": {"type": "any_text", "excludes": [self.close]},
            "end": self.close,
        }
        blanks = {"type": "regex", "pattern": r"\n{0,2}"}
        thought: dict[str, Any] = {"type": "sequence", "elements": [tag, blanks]}
        return thought if self._is_open else {"type": "optional", "content": thought}

    def feed(self, text: str) -> list[Event]:
        """Process more text; return the events that are certain now."""
        self._buffer += text
        return self._run(is_end=False)

    def end(self) -> list[Event]:
        """Return the events held back so far; no text follows."""
        return self._run(is_end=True)

    def _run(self, *, is_end: bool) -> list[Event]:
        events: list[Event] = []
        if self._state == "start":
            self._find_start(is_end)
        if self._state == "reasoning":
            self._read_reasoning(events, is_end)
        if self._state == "behind":
            self._buffer = self._buffer.lstrip()
            if self._buffer:
                self._state = "content"
        if self._state == "content" and self._buffer:
            events.append(Text(self._buffer))
            self._buffer = ""
        return events

    def _find_start(self, is_end: bool) -> None:
        text = self._buffer.lstrip()
        if text.startswith(self.begin):
            self._buffer, self._state = text[len(self.begin) :], "reasoning"
        elif is_end or not self.begin.startswith(text):
            self._state = "reasoning" if self._is_open else "content"

    def _read_reasoning(self, events: list[Event], is_end: bool) -> None:
        at = self._buffer.find(self.close)
        if at >= 0:
            text, self._buffer, self._state = (
                self._buffer[:at],
                self._buffer[at + len(self.close) :],
                "behind",
            )
        else:
            held = 0 if is_end else num_held(self._buffer, (self.close,))
            certain = self._buffer[: len(self._buffer) - held]
            if not is_end:
                certain = certain.rstrip()
            text, self._buffer = certain, self._buffer[len(certain) :]
        if at >= 0 or is_end:
            text = text.rstrip()
        if not self._has_reasoning:
            text = text.lstrip()
        if text:
            self._has_reasoning = True
            events.append(Reasoning(text))


class DeepSeekR1Parser(ThinkParser):
    """DeepSeek R1 and other models that always reason; the start marker may be missing."""

    is_open: ClassVar[bool] = True


class MistralReasoningParser(ThinkParser):
    """Magistral: `[THINK]` and `[/THINK]`."""

    needs_special_tokens: ClassVar[bool] = True
    begin: ClassVar[str] = "[THINK]"
    close: ClassVar[str] = "[/THINK]"


class HarmonyReasoningParser(ReasoningParser):
    """gpt-oss: the channel `analysis`. It also emits tool calls."""

    needs_special_tokens: ClassVar[bool] = True

    def __init__(self, prompt: str) -> None:
        from specdec_server.tools.harmony import HarmonyParser

        super().__init__(prompt)
        self._parser = HarmonyParser([])

    @classmethod
    def markers(cls) -> dict[str, Any]:
        """Return the begin and the end of a message of the channel."""
        begin, end = "<|channel|>analysis<|message|>", "<|end|>"
        return {"reasoning_start_str": begin, "reasoning_end_str": end, "reasoning_close_str": end}

    def prefix(self) -> dict[str, Any] | None:
        """Return the structural-tag format of the reasoning."""
        from specdec_server.tools.harmony import ANALYSIS

        return ANALYSIS

    def feed(self, text: str) -> list[Event]:
        """Process more text; return the events that are certain now."""
        return self._parser.feed(text)

    def end(self) -> list[Event]:
        """Return the events held back so far; no text follows."""
        return self._parser.end()
