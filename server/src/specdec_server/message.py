"""One message of a model for clients: reasoning, content and tool calls, complete or streamed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from specdec_server.errors import ApiError
from specdec_server.tools.events import CallArguments, CallStart, Event, Reasoning, Text
from specdec_server.tools.json_writing import escaped, replaced
from specdec_server.tools.parser import OutputParser, ToolParser, new_call_id


class MessageParser:
    """Runs a model's text through the parsers of a request.

    Args:
        reasoning: separates reasoning from the rest; None for no reasoning parser.
        tools: finds tool calls in the rest; None without tools.
        max_calls: further calls are dropped; None for any number.
        shows_reasoning: whether reasoning is returned.
        shows_content: whether content is returned. With forced calls the only content would be a truncated call.
    """

    def __init__(
        self,
        reasoning: OutputParser | None,
        tools: ToolParser | None,
        *,
        max_calls: int | None = None,
        shows_reasoning: bool = True,
        shows_content: bool = True,
    ) -> None:
        self._reasoning, self._tools = reasoning, tools
        self._max_calls = max_calls
        hidden: dict[type[Event], bool] = {Reasoning: not shows_reasoning, Text: not shows_content}
        self._hidden: tuple[type[Event], ...] = tuple(kind for kind, is_hidden in hidden.items() if is_hidden)
        self._num_calls = 0

    def feed(self, text: str) -> list[Event]:
        """Process more text; return the events that are certain now."""
        if not text:
            return []
        if self._reasoning is None:
            return self._kept([Text(text)] if self._tools is None else self._tools.feed(text))
        return self._kept(self._passed_on(self._reasoning.feed(text)))

    def end(self) -> list[Event]:
        """Return the events held back so far; no text follows."""
        events = [] if self._reasoning is None else self._passed_on(self._reasoning.end())
        if self._tools is not None:
            events += self._tools.end()
        return self._kept(events)

    def call_id(self, start: CallStart) -> str:
        """Return an id for a call."""
        if self._tools is None:
            return new_call_id()
        return self._tools.call_id(start.name, start.index)

    def _passed_on(self, events: Sequence[Event]) -> list[Event]:
        if self._tools is None:
            return list(events)
        found: list[Event] = []
        for event in events:
            found += self._tools.feed(event.text) if isinstance(event, Text) else [event]
        return found

    def _kept(self, events: Sequence[Event]) -> list[Event]:
        kept: list[Event] = []
        for event in map(self._checked, events):
            if isinstance(event, CallStart | CallArguments) and not self._is_allowed(event.index):
                continue
            if not isinstance(event, self._hidden):
                kept.append(event)
        return kept

    def _checked(self, event: Event) -> Event:
        """Return what a parser returned as something that every response can carry.

        Raises:
            ApiError: if it is not an event.
        """
        if isinstance(event, CallStart) and event.index == self._num_calls and isinstance(event.name, str):
            self._num_calls += 1
            return CallStart(event.index, replaced(event.name))
        if isinstance(event, CallArguments) and event.index < self._num_calls and isinstance(event.text, str):
            return CallArguments(event.index, escaped(event.text))
        if isinstance(event, Text | Reasoning) and isinstance(event.text, str):
            return type(event)(replaced(event.text))
        parser = type(self._tools or self._reasoning)
        raise ApiError(
            f"the parser {parser.__module__}.{parser.__qualname__} returned {event!r:.200}, which is no event: the index of a "
            "call counts from 0, its start comes first, and texts are strings",
            500,
            code="parser_error",
        )

    def _is_allowed(self, call: int) -> bool:
        return self._max_calls is None or call < self._max_calls


@dataclass
class Call:
    """One tool call."""

    id: str
    name: str
    arguments: str = ""


@dataclass
class Message:
    """The parsed parts of a message."""

    reasoning: str = ""
    content: str = ""
    calls: list[Call] = field(default_factory=list)

    def add(self, events: Sequence[Event], parser: MessageParser) -> None:
        """Add events to the message."""
        for event in events:
            if isinstance(event, Text):
                self.content += event.text
            elif isinstance(event, Reasoning):
                self.reasoning += event.text
            elif isinstance(event, CallStart):
                self.calls.append(Call(parser.call_id(event), event.name))
            else:
                self.calls[event.index].arguments += event.text

    def as_chat(self) -> dict[str, Any]:
        """Return the message of a chat completion."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.calls:
            message["content"] = self.content or None
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in self.calls
            ]
        if self.reasoning:
            message |= reasoning_fields(self.reasoning)
        return message


def reasoning_fields(text: str) -> dict[str, str]:
    """Return reasoning under both names that clients use: vLLM's and DeepSeek's."""
    return {"reasoning": text, "reasoning_content": text}


def deltas(events: Sequence[Event], parser: MessageParser) -> list[dict[str, Any]]:
    """Return events as deltas of a chat completion stream, with at most one call in each."""
    found: list[dict[str, Any]] = []
    for event in events:
        if isinstance(event, Text):
            found.append({"content": event.text})
        elif isinstance(event, Reasoning):
            found.append(reasoning_fields(event.text))
        elif isinstance(event, CallStart):
            function = {"name": event.name, "arguments": ""}
            call = {
                "index": event.index,
                "id": parser.call_id(event),
                "type": "function",
                "function": function,
            }
            found.append({"tool_calls": [call]})
        else:
            last = found[-1].get("tool_calls") if found else None
            if last and last[0]["index"] == event.index:
                last[0]["function"]["arguments"] += event.text
            else:
                found.append({"tool_calls": [{"index": event.index, "function": {"arguments": event.text}}]})
    return found
