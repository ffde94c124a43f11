"""Every reasoning parser; each text cut at every position gives the same."""

import pytest

from specdec_server.message import Message, MessageParser
from specdec_server.reasoning import ReasoningParser
from specdec_server.tools import Tool, ToolParser
from specdec_server.tools.hermes import HermesParser
from specdec_server.tools.parser import OutputParser
from specdec_server.tools.registry import REASONING_PARSERS, parser_class

ASK, OPEN, OFF = "<user>hi\n<assistant>", "<assistant><think>\n", "<assistant><think>\n\n</think>\n\n"
CALL = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'


@pytest.mark.parametrize(
    ("name", "prompt", "text", "reasoning", "content"),
    [
        ("qwen3", ASK, "<think>\nab  c\n</think>\n\nAnswer \n", "ab  c", "Answer \n"),
        ("qwen3", ASK, " Answer", "", " Answer"),
        ("qwen3", ASK, "<thi", "", "<thi"),
        ("qwen3", OPEN, "ab < c</think>Answer", "ab < c", "Answer"),
        ("qwen3", OPEN, "<think>ab</think>Answer", "ab", "Answer"),
        ("qwen3", OPEN, "cut off", "cut off", ""),
        ("qwen3", OFF, "An <think> swer", "", "An <think> swer"),
        ("deepseek_r1", ASK, "ab</think>Answer", "ab", "Answer"),
        ("deepseek_r1", ASK, "ab", "ab", ""),
        ("mistral", ASK, "[THINK]ab[/THINK]Answer", "ab", "Answer"),
        ("gpt_oss", ASK, "<|channel|>analysis<|message|>ab<|end|><|start|>assistant<|channel|>final<|message|>c", "ab", "c"),
    ],
)  # fmt: skip
def test_reasoning_is_told_apart_however_the_text_is_cut(
    name: str, prompt: str, text: str, reasoning: str, content: str
) -> None:
    parser = parser_class(REASONING_PARSERS, name, ReasoningParser, "--reasoning-parser")
    for place in range(len(text)):
        found = parsed(parser(prompt), None, [text[:place], text[place:]])
        assert (found.reasoning, found.content, found.calls) == (reasoning, content, []), place


def test_calls_while_the_model_thinks_are_no_calls() -> None:
    parser = parser_class(REASONING_PARSERS, "qwen3", ReasoningParser, "--reasoning-parser")
    text = f"<think>I could {CALL}</think>\n\n{CALL}"
    for place in range(len(text)):
        found = parsed(parser(ASK), HermesParser([Tool("f")]), [text[:place], text[place:]])
        assert (found.reasoning, found.content) == (f"I could {CALL}", "")
        assert [(call.name, call.arguments) for call in found.calls] == [("f", "{}")]


def test_reasoning_and_calls_can_be_left_out() -> None:
    parser = parser_class(REASONING_PARSERS, "qwen3", ReasoningParser, "--reasoning-parser")
    source = MessageParser(parser(ASK), HermesParser([Tool("f")]), max_calls=1, shows_reasoning=False)
    found = Message()
    found.add([*source.feed(f"<think>no</think>{CALL}{CALL}"), *source.end()], source)
    assert (found.reasoning, found.content, len(found.calls)) == ("", "", 1)


def test_what_a_grammar_lets_the_model_think() -> None:
    parser = parser_class(REASONING_PARSERS, "qwen3", ReasoningParser, "--reasoning-parser")
    assert parser(OFF).prefix() is None
    opened, free = parser(OPEN).prefix(), parser(ASK).prefix()
    assert opened is not None
    assert opened["elements"][0]["begin"] == ""
    assert free is not None
    assert free["type"] == "optional"
    assert free["content"]["elements"][0]["begin"] == "<think>"


def parsed(reasoning: OutputParser, tools: ToolParser | None, pieces: list[str]) -> Message:
    source, found = MessageParser(reasoning, tools), Message()
    for events in [*(source.feed(piece) for piece in pieces), source.end()]:
        found.add(events, source)
    return found
