"""Parses texts of models for tests: whole, and as a stream whose deltas must add up to the same."""

from specdec_server.message import Message, MessageParser, deltas
from specdec_server.tools import Tool, ToolParser
from specdec_server.tools.registry import TOOL_PARSERS, parser_class

SCHEMA = {
    "type": "object",
    "properties": {
        "count": {"type": "integer"},
        "text": {"type": "string"},
        "where": {"anyOf": [{"$ref": "#/$defs/place"}, {"type": "null"}]},
        "flag": {"type": "boolean"},
        "ratio": {"type": ["number", "null"]},
    },
    "$defs": {"place": {"type": "object"}},
}
TOOLS = [Tool("f", parameters=SCHEMA), Tool("g")]
F, G = ("f", '{"a": 1}'), ("g", "{}")
BAR, LOW = "\uff5c", "\u2581"


def seek(words: str) -> str:
    return f"<{BAR}{words.replace(' ', LOW)}{BAR}>"


SECTION, CALL, SEP, CLOSE, LAST = (
    seek(f"tool {words}") for words in ("calls begin", "call begin", "sep", "call end", "calls end")
)


def parsed(parser: type[ToolParser], pieces: list[str]) -> Message:
    """What the deltas of a stream add up to; the same events as a whole message must agree."""
    whole, streamed, source = Message(), Message(), MessageParser(None, parser(TOOLS))
    for events in [*(source.feed(piece) for piece in pieces), source.end()]:
        whole.add(events, source)
        for delta in deltas(events, source):
            streamed.content += delta.get("content", "")
            streamed.reasoning += delta.get("reasoning", "")
            for call in delta.get("tool_calls", ()):
                if "id" in call:
                    assert call["index"] == len(streamed.calls)
                    streamed.calls.append(whole.calls[call["index"]].__class__("", call["function"]["name"]))
                streamed.calls[call["index"]].arguments += call["function"]["arguments"]
    assert streamed.content == whole.content
    assert [(c.name, c.arguments) for c in streamed.calls] == [(c.name, c.arguments) for c in whole.calls]
    return whole


def result(message: Message) -> tuple[str, str, list[tuple[str, str]]]:
    return message.reasoning, message.content, [(call.name, call.arguments) for call in message.calls]


def check(name: str, text: str, expected: tuple[str, str, list[tuple[str, str]]]) -> None:
    """The same result for a text as a whole, in single characters, and cut in two anywhere."""
    parser = parser_class(TOOL_PARSERS, name, ToolParser, "--tool-call-parser")
    assert result(parsed(parser, [text])) == expected
    assert result(parsed(parser, list(text))) == expected
    for place in range(1, len(text), 1 + len(text) // 1000):
        assert result(parsed(parser, [text[:place], text[place:]])) == expected, place
