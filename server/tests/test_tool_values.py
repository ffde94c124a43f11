"""Values within calls: marks of the format in them, and values that have no JSON form."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from servercheck.parsing import CALL, CLOSE, LAST, SECTION, SEP, F, G, check, parsed, result

from specdec_server.errors import ApiError
from specdec_server.message import MessageParser
from specdec_server.tools import CallArguments, CallStart, Text, ToolParser
from specdec_server.tools.qwen_coder import QwenCoderParser

NAMELESS = '{"name": "\\ud83d", "arguments": {}}'
END_CALL = ("f", '{"a": "<|tool_call_end|>"}')


def qwen(name: str, value: str) -> str:
    return f"<tool_call>\n<function=f>\n<parameter={name}>\n{value}\n</parameter>\n</function>\n</tool_call>"


CASES: list[tuple[str, str, str, list[tuple[str, str]]]] = [
    ("deepseek_v3", f'{SECTION}{CALL}function{SEP}f\n```json\n{{"a": 1}}\n```', "", [F]),
    ("deepseek_v3", f'{SECTION}{CALL}function{SEP}f\n```json\n{{"a": 1}}\n``', "", [F]),
    ("deepseek_v3", f'{SECTION}{CALL}function{SEP}f\n```json\n{{"a": "x ``', "", [("f", '{"a": "x ``')]),
    ("deepseek_v31", f'{SECTION}{CALL}f{SEP}{{"a": "{CLOSE}{LAST}"}}{CLOSE}{LAST}', "", [("f", f'{{"a": "{CLOSE}{LAST}"}}')]),
    ("deepseek_v31", f'{CALL}f{SEP}{{"a": "x{CLOSE}{CALL}g{SEP}{{}}{CLOSE}', "", [("f", '{"a": "x'), G]),
    ("deepseek_v31", f'{CALL}f{SEP}{{"a": "x{CLOSE}{CALL}g{SEP}{{"b": "y{CLOSE}', "", [("f", '{"a": "x'), ("g", '{"b": "y')]),
    ("kimi_k2", '<|tool_call_begin|>f<|tool_call_argument_begin|>{"a": "<|tool_call_end|>"}<|tool_call_end|>', "", [END_CALL]),
    (
        "gpt_oss",
        '<|channel|>commentary to=functions.f<|message|>{"a": "<|call|><|start|>"}<|call|>',
        "",
        [("f", '{"a": "<|call|><|start|>"}')],
    ),
    (
        "gpt_oss",
        '<|channel|>commentary to=functions.f<|message|>{"a": "x<|call|>'
        '<|start|>assistant<|channel|>final<|message|>Hi<|return|>',
        "Hi",
        [("f", '{"a": "x')],
    ),
    ("qwen3_coder", qwen("text", "a </function> b"), "", [("f", '{"text": "a </function> b"}')]),
    ("qwen3_coder", qwen("text", "</tool_call>"), "", [("f", '{"text": "</tool_call>"}')]),
    ("qwen3_coder", qwen("text", "<parameter=count>"), "", [("f", '{"text": "<parameter=count>"}')]),
    ("qwen3_coder", qwen("text", "</parameter>."), "", [("f", '{"text": "</parameter>."}')]),
    ("qwen3_coder", qwen("where", '{"x": "</function>"}'), "", [("f", '{"where": {"x": "</function>"}}')]),
    ("qwen3_coder", qwen("ratio", "1e400"), "", [("f", '{"ratio": "1e400"}')]),
    ("qwen3_coder", qwen("ratio", "NaN"), "", [("f", '{"ratio": "NaN"}')]),
    ("qwen3_coder", qwen("where", '{"x": -1e400}'), "", [("f", '{"where": "{\\"x\\": -1e400}"}')]),
    ("qwen3_coder", qwen("where", "[" * 9000), "", [("f", '{"where": "' + "[" * 9000 + '"}')]),
    ("qwen3_coder", qwen("where", "{'x': '\\ud83d\\ude00'}"), "", [("f", '{"where": {"x": "😀"}}')]),
    ("qwen3_coder", qwen("where", "{1: 'a', '1': True}"), "", [("f", '{"where": {"1": true}}')]),
    ("qwen3_coder", qwen("where", "{'x': '\\ud83d'}"), "", [("f", '{"where": {"x": "\\ud83d"}}')]),
    ("qwen3_coder", qwen("where", "{'x': {1, 2}}"), "", [("f", '{"where": "{\'x\': {1, 2}}"}')]),
    (
        "qwen3_coder",
        "<function=f><parameter=text>a</parameter><parameter=text>b</parameter><parameter=count>1</parameter></function>",
        "",
        [("f", '{"text": "a", "count": 1}')],
    ),
    ("qwen3_coder", "<function=f><parameter=count>1</function>2</parameter></function>", "", [("f", '{"count": 1}')]),
    ("pythonic", "[f(a='\\ud83d\\ude00')]", "", [("f", '{"a": "😀"}')]),
    ("pythonic", "[f(a='\\ude00\\ud83d')]", "", [("f", '{"a": "\\ude00\\ud83d"}')]),
    ("pythonic", "[f(a={1: 2, '1': 3}), f(a=1, a=2), f()(a=1), g()]", "", [("f", '{"a": {"1": 3}}'), G]),
    ("pythonic", "[f(a=1e400), f(a={'b': -1e400}), g()]", "", [G]),
    ("hermes", '<tool_call>{"name": "f", "name": "g", "arguments": {"a": 1}, "name": "g"}</tool_call>', "", [F]),
    ("hermes", '<tool_call>{"arguments": {"a": 1}, "name": "f", "name": "g"}</tool_call>', "", [F]),
    ("hermes", f"<tool_call>{NAMELESS}</tool_call>", f"<tool_call>{NAMELESS}</tool_call>", []),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": "{\\"a\\": \\"\\ud83d\\"}"}</tool_call>',
        "",
        [("f", '{"a": "\\ud83d"}')],
    ),
    ("hermes", '<tool_call>{"name": "f", "arguments": "{\\"a\\": NaN}"}</tool_call>', "", [("f", '"{\\"a\\": NaN}"')]),


]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "content", "calls"), CASES)
def test_values_are_what_the_model_wrote(
    name: str, text: str, content: str, calls: list[tuple[str, str]]
) -> None:
    check(name, text, ("", content, calls))
    for _, arguments in calls:
        arguments.encode()


parts = st.sampled_from(
    [
        "a",
        "\n",
        "<",
        "</",
        "</function>",
        "</tool_call>",
        "<parameter=count>",
        "<parameter=x",
        "</parameter>x",
        "<function=g>",
    ]
)


@settings(max_examples=200, deadline=None)
@given(value=st.lists(parts, min_size=1, max_size=6).map("".join), size=st.integers(1, 9))
def test_tags_within_a_value_are_part_of_it(value: str, size: int) -> None:
    text = qwen("text", value) + qwen("count", "1")
    expected = [("f", json.dumps({"text": value})), ("f", '{"count": 1}')]
    pieces = [text[place : place + size] for place in range(0, len(text), size)]
    assert result(parsed(QwenCoderParser, [text])) == ("", "", expected)
    assert result(parsed(QwenCoderParser, pieces)) == ("", "", expected)


def test_the_message_parser_checks_what_a_parser_returns() -> None:
    class Careless(ToolParser):
        events: Any = ()

        def feed(self, text: str) -> list[Any]:
            return list(self.events)

        def end(self) -> list[Any]:
            return []

    for wrong in ("text", Text(3), CallArguments(0, "{}"), CallStart(1, "f"), CallStart(0, None), None):
        parser = Careless(())
        parser.events = [wrong]
        with pytest.raises(ApiError, match=r"Careless returned .*, which is no event"):
            MessageParser(None, parser).feed("x")
    parser = Careless(())
    parser.events = [Text("\ud83d\ude00\ud83d"), CallStart(0, "\ud83d"), CallArguments(0, '{"a": "\ud83d"}')]
    assert MessageParser(None, parser).feed("x") == [
        Text("😀\ufffd"),
        CallStart(0, "\ufffd"),
        CallArguments(0, '{"a": "\\ud83d"}'),
    ]
