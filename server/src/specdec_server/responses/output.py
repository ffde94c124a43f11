"""The output items of a response while they are generated, and the corresponding stream events."""

from __future__ import annotations

from collections.abc import Sequence
from secrets import token_hex
from typing import Any

from specdec_server.message import MessageParser
from specdec_server.tools import CallStart, Event, Reasoning, Text

Events = list[dict[str, Any]]


class Output:
    """Builds items from parser events; one item is open at a time.

    Args:
        parser: of the message.
    """

    def __init__(self, parser: MessageParser) -> None:
        self.items: list[dict[str, Any]] = []
        self.reasoning = ""
        self.content = ""
        self._parser = parser
        self._kind: type[Event] | None = None

    def add(self, found: Sequence[Event]) -> Events:
        """Add parser events; return the corresponding stream events."""
        events: Events = []
        for event in found:
            if isinstance(event, Text | Reasoning):
                if self._kind is not type(event):
                    events += [*self.close(), *self._open_part(type(event))]
                events.append(self._grow(event))
            elif isinstance(event, CallStart):
                events += [*self.close(), *self._open_call(event)]
            else:
                self.items[-1]["arguments"] += event.text
                events.append(self._event("response.function_call_arguments.delta", delta=event.text))
        return events

    def close(self, status: str = "completed") -> Events:
        """Close the open item, if there is one, and return its stream events.

        Args:
            status: of the item: `incomplete` if the text was cut off.
        """
        if self._kind is None:
            return []
        item, kind, self._kind = self.items[-1], self._kind, None
        item["status"] = status
        events: Events = []
        if kind is CallStart:
            done = self._event(
                "response.function_call_arguments.done", arguments=item["arguments"], name=item["name"]
            )
            events.append(done)
        else:
            part = item["content"][0]
            name = "output_text" if kind is Text else "reasoning_text"
            more: dict[str, Any] = {"logprobs": []} if kind is Text else {}
            events.append(self._event(f"response.{name}.done", content_index=0, text=part["text"], **more))
            events.append(self._event("response.content_part.done", content_index=0, part=dict(part)))
        events.append(self._event("response.output_item.done", item=copied(item)))
        return events

    def _open_part(self, kind: type[Event]) -> Events:
        self._kind = kind
        item: dict[str, Any] = {
            "id": f"rs_{token_hex(16)}",
            "type": "reasoning",
            "summary": [],
            "status": "in_progress",
        }
        part: dict[str, Any] = {"type": "reasoning_text", "text": ""}
        if kind is Text:
            item = {
                "id": f"msg_{token_hex(16)}",
                "type": "message",
                "role": "assistant",
                "status": "in_progress",
            }
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        self.items.append({**item, "content": []})
        events = [self._event("response.output_item.added", item=copied(self.items[-1]))]
        self.items[-1]["content"] = [part]
        return [*events, self._event("response.content_part.added", content_index=0, part=dict(part))]

    def _grow(self, event: Text | Reasoning) -> dict[str, Any]:
        self.items[-1]["content"][0]["text"] += event.text
        if isinstance(event, Text):
            self.content += event.text
            return self._event("response.output_text.delta", content_index=0, delta=event.text, logprobs=[])
        self.reasoning += event.text
        return self._event("response.reasoning_text.delta", content_index=0, delta=event.text)

    def _open_call(self, start: CallStart) -> Events:
        self._kind = CallStart
        self.items.append(
            {
                "id": f"fc_{token_hex(16)}",
                "type": "function_call",
                "call_id": self._parser.call_id(start),
                "name": start.name,
                "arguments": "",
                "status": "in_progress",
            }
        )
        return [self._event("response.output_item.added", item=copied(self.items[-1]))]

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        place = {"output_index": len(self.items) - 1}
        return {
            "type": kind,
            **place,
            **({} if "item" in fields else {"item_id": self.items[-1]["id"]}),
            **fields,
        }


def copied(item: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of an item that does not change any more."""
    return {**item, **({"content": [dict(part) for part in item["content"]]} if "content" in item else {})}
