"""Whatever is given where tools, calls and items belong: it is taken, or refused in a sentence."""

from collections.abc import Callable, Iterator
from typing import Any

from specdec import ConfigError
from specdec_server.protocol.chat import text_messages
from specdec_server.responses.items import messages_of
from specdec_server.tools import Tool
from specdec_server.tools.choice import tool_choice_of
from specdec_server.tools.conversation import for_template
from specdec_server.tools.schema_types import types_of

CALL = {"function": {"name": "f", "arguments": "{"}}
VALUES: list[Any] = [
    None, True, 5, 1.5, "x", "", [], [1], ["x"], {}, {"a": 1}, [[]], [{}], [{"function": 1}], [{"function": {"name": 1}}],
    [{"function": {"name": "f", "arguments": 5}}], [CALL], [{"type": []}],
]  # fmt: skip
FUNCTION = {"type": "function", "function": {"name": "f"}}
ITEM = {"role": "assistant", "content": "x", "call_id": "c", "name": "n", "arguments": "{}", "output": "o"}


def attempts(value: Any) -> Iterator[Callable[[], object]]:
    for key in ("tool_calls", "content", "reasoning", "reasoning_content", "role"):
        for role in ("assistant", "tool", "developer"):
            messages = [{"role": "user", "content": "x"}, *([{"role": role, "content": "c", key: value}] * 2)]
            for template in ("", "tools", "developer"):
                yield lambda m=messages, t=template: for_template(text_messages(m), [Tool("f")], t)
    for key in ("type", "function", "name", "parameters", "strict", "description"):
        yield lambda k=key: tool_choice_of([FUNCTION | {k: value}], "auto", None)
        yield lambda k=key: tool_choice_of([{**FUNCTION, "function": {"name": "f", k: value}}], None, None)
    for choice in (
        value, {"type": value}, {"type": "function", "function": value}, {"type": "function", "name": value},
        {"type": "allowed_tools", "allowed_tools": value}, {"type": "allowed_tools", "mode": "auto", "tools": value},
    ):  # fmt: skip
        yield lambda c=choice: tool_choice_of([FUNCTION], c, None)
    for kind in ("message", "reasoning", "function_call", "function_call_output", value):
        for key in ("summary", *ITEM):
            items = [{"type": "reasoning", "content": "a"}, {"type": kind, **ITEM, key: value}]
            yield lambda i=items: messages_of(i)
    for key in ("type", "enum", "const", "anyOf", "$ref", "properties"):
        yield lambda k=key: types_of({k: value}, {k: value})


def test_nothing_but_sentences() -> None:
    counts = {"taken": 0, "refused": 0}
    for value in VALUES:
        for attempt in attempts(value):
            try:
                attempt()
                counts["taken"] += 1
            except ConfigError:
                counts["refused"] += 1
    assert min(counts.values()) > 300, counts
