"""Calls of tools through the official client: forced ones by a grammar, free ones as the model writes them."""

import json
from dataclasses import replace
from typing import Any

import pytest
from openai import OpenAI
from servercheck.served import TEMPLATE, Served

from specdec_server.reasoning.think import ThinkParser

MESSAGES = [{"role": "user", "content": "What is 2 + 2?"}]
ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "op": {"enum": ["plus", "minus"]}},
    "required": ["a", "op"],
    "additionalProperties": False,
}


def tool(name: str, parameters: dict[str, Any] | None = None, **more: Any) -> Any:
    function = {"name": name, "description": f"Does {name}.", **more}
    return {
        "type": "function",
        "function": function | ({} if parameters is None else {"parameters": parameters}),
    }


TOOLS = [tool("add", ADD), tool("now")]
ASKED: dict[str, Any] = {"model": "zoo", "messages": MESSAGES, "tools": TOOLS, "max_tokens": 120}
THINKING = TEMPLATE + "{% if enable_thinking %}<think>\n{% else %}<think>\n\n</think>\n\n{% endif %}"
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 4, "op": "plus"}}\n</tool_call>'


def joined(chunks: Any) -> tuple[str, list[tuple[str, str]], str | None]:
    """Content, calls and the reason of the end that a stream adds up to."""
    content, calls, reason = "", [], None
    for chunk in chunks:
        for choice in chunk.choices:
            content += choice.delta.content or ""
            reason = choice.finish_reason or reason
            for call in choice.delta.tool_calls or ():
                if call.id:
                    assert call.index == len(calls)
                    calls.append((call.function.name, ""))
                name, arguments = calls[call.index]
                calls[call.index] = (name, arguments + call.function.arguments)
    return content, calls, reason


def whole(completion: Any) -> tuple[str, list[tuple[str, str]], str | None]:
    choice = completion.choices[0]
    calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()]
    return choice.message.content or "", calls, choice.finish_reason


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.sampled(1, slow=1)
def test_a_required_call_is_one_streamed_whole_and_without_drafts(client: OpenAI, seed: int) -> None:
    asked = ASKED | {
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "seed": seed,
        "temperature": 0.9,
    }
    content, calls, reason = found = whole(client.chat.completions.create(**asked))
    assert (content, reason, len(calls)) == ("", "tool_calls", 1)
    name, arguments = calls[0]
    assert name in ("add", "now")
    assert set(json.loads(arguments)) == ({"a", "op"} if name == "add" else set())
    assert joined(client.chat.completions.create(**asked, stream=True)) == found
    for speculative in (False, {"num_speculative_tokens": 1}):
        asked["extra_body"] = {"speculative": speculative}
        assert whole(client.chat.completions.create(**asked)) == found


def test_a_draft_that_copies_half_a_call_changes_nothing(client: OpenAI) -> None:
    """Prompt lookup drafts what the conversation has seen: the marks of a call, its name and half of its arguments."""
    seen = [
        *MESSAGES,
        {"role": "assistant", "content": CALL * 3},
        {"role": "user", "content": f"Again: {CALL[:40]}"},
    ]
    asked = ASKED | {
        "messages": seen,
        "tool_choice": {"type": "function", "function": {"name": "add"}},
        "temperature": 0,
    }
    completion = client.chat.completions.create(**asked)
    content, calls, reason = found = whole(completion)
    assert (content, reason) == ("", "stop"), "a call that was asked for by name is no reason of its own"
    assert [name for name, _ in calls] == ["add"]
    assert set(json.loads(calls[0][1])) == {"a", "op"}
    assert completion.metrics["speculative_decoding"]["num_accepted_draft_tokens"] > 0
    assert joined(client.chat.completions.create(**asked, stream=True)) == found
    assert whole(client.chat.completions.create(**asked, extra_body={"speculative": False})) == found


@pytest.mark.parametrize("stream", [False, True])
def test_free_calls_are_found_in_the_text(client: OpenAI, served: Served, stream: bool) -> None:
    """The model may answer with this very text, or call: the bias makes it answer."""
    _, first = served.ask("/tokenize", {"prompt": "W", "add_special_tokens": False})
    form = {"structured_outputs": {"choice": [f"Well.{CALL}\n{CALL}"]}}
    asked = ASKED | {"temperature": 0, "max_tokens": 250, "stream": stream, "extra_body": form}
    asked["logit_bias"] = {str(first["tokens"][0]): 100}
    read, call = joined if stream else whole, ("add", '{"a": 4, "op": "plus"}')
    create = client.chat.completions.create
    assert read(create(**asked)) == ("Well.", [call, call], "tool_calls")
    assert read(create(**asked | {"parallel_tool_calls": False})) == ("Well.", [call], "tool_calls")
    found = read(create(**asked | {"tool_choice": "none"}))
    assert found == (f"Well.{CALL}\n{CALL}", [], "stop"), "nothing is looked for where nothing may be called"


def test_a_call_that_is_cut_off_says_so(client: OpenAI) -> None:
    asked = ASKED | {"tool_choice": "required", "tools": TOOLS[:1], "max_tokens": 20, "seed": 1}
    content, _, reason = found = whole(client.chat.completions.create(**asked))
    assert (content, reason) == ("", "length")
    assert joined(client.chat.completions.create(**asked, stream=True)) == found


def test_strict_tools_are_kept_to_where_the_model_is_free(client: OpenAI) -> None:
    """A grammar lets text run freely; behind the mark of a call it must be one of the tools'."""
    tools = [tool("add", ADD, strict=True)]
    asked = ASKED | {"tools": tools, "temperature": 0, "max_tokens": 6}
    completion = client.chat.completions.create(**asked)
    assert completion.choices[0].finish_reason == "length"
    assert completion.choices[0].message.tool_calls is None
    assert completion.choices[0].message.content


def test_schemas_that_no_grammar_holds_to(served: Served) -> None:
    """A strict tool with one is refused; without `strict` the model calls, and may go beyond."""
    parameters = {
        "type": "object",
        "properties": {"a": {"type": "integer", "not": {"const": 3}}},
        "required": ["a"],
    }
    body = {
        "messages": MESSAGES,
        "max_tokens": 60,
        "seed": 2,
        "tool_choice": "required",
        "parallel_tool_calls": False,
    }
    status, message = served.error(
        "/v1/chat/completions", body | {"tools": [tool("f", parameters, strict=True)]}
    )
    assert (status, "'f' is strict" in message, '"not"' in message) == (400, True, True)
    status, answer = served.ask("/v1/chat/completions", body | {"tools": [tool("f", parameters)]})
    assert status == 200
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "f"
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": parameters}}
    free = body | {"tool_choice": "auto", "tools": TOOLS, "response_format": form}
    assert '"not"' in served.error("/v1/chat/completions", free)[1]
    for tag in ("{", "[]", {"format": 1}):
        wrong = body | {"structured_outputs": {"structural_tag": tag}}
        for more in ({"tool_choice": "auto", "tools": TOOLS}, {"tool_choice": "none"}):
            status, message = served.error("/v1/chat/completions", wrong | more)
            assert (status, "structured_outputs" in message) == (400, True), message


def test_every_sample_has_calls_of_its_own(client: OpenAI) -> None:
    asked = ASKED | {"tool_choice": "required", "parallel_tool_calls": False, "n": 3, "seed": 5}
    completion = client.chat.completions.create(**asked)
    calls = [choice.message.tool_calls[0] for choice in completion.choices]
    assert len({call.id for call in calls}) == 3
    streamed: dict[int, str] = dict.fromkeys(range(3), "")
    for chunk in client.chat.completions.create(**asked, stream=True):
        for choice in chunk.choices:
            for call in choice.delta.tool_calls or ():
                streamed[choice.index] += call.function.arguments
    assert list(streamed.values()) == [call.function.arguments for call in calls]


def prompt_of(served: Served, **body: Any) -> str:
    """What the model reads, as the server tells it."""
    asked = {"messages": MESSAGES, "max_tokens": 1, "return_token_ids": True} | body
    status, answer = served.ask("/v1/chat/completions", asked)
    assert status == 200, answer
    return served.ask("/detokenize", {"tokens": answer["prompt_token_ids"]})[1]["prompt"]


def test_a_template_without_tools_gets_them_described(served: Served) -> None:
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "add", "arguments": '{"a": 4, "op": "plus"}'},
    }
    messages = [
        {"role": "developer", "content": "Be brief."},
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "4"},
        {"role": "tool", "tool_call_id": "call_1", "content": "5"},
    ]
    system, rest = prompt_of(served, messages=messages, tools=TOOLS).split("<user>", 1)
    assert system.startswith("<system>Be brief.\n\nThese functions can be called:\n")
    assert json.dumps(TOOLS[0]["function"]["parameters"]) in system
    results = "<tool_response>\n4\n</tool_response>\n<tool_response>\n5\n</tool_response>"
    assert rest == f"What is 2 + 2?\n<assistant>{CALL}\n<user>{results}\n<assistant>"


def test_a_template_with_tools_gets_them_as_they_are(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    template = "[TOOL_CALLS]{% for t in tools or [] %}({{ t.function.name }}){% endfor %}" + TEMPLATE.replace(
        "{{ message.content }}",
        "{{ message.content }}{% for c in message.tool_calls or [] %}{{ c.function.arguments.a }}{% endfor %}",
    )
    monkeypatch.setattr(served.llm.get_tokenizer(), "chat_template", template)
    call = {"id": "x", "type": "function", "function": {"name": "add", "arguments": '{"a": 4}'}}
    messages = [*MESSAGES, {"role": "assistant", "content": "", "tool_calls": [call]}]
    prompt = prompt_of(served, messages=messages, tools=TOOLS)
    assert prompt == "[TOOL_CALLS](add)(now)<user>What is 2 + 2?<assistant>4<assistant>"
    body = {"messages": MESSAGES, "tools": TOOLS, "max_tokens": 80, "tool_choice": "required", "seed": 1}
    _, answer = served.ask("/v1/chat/completions", body | {"parallel_tool_calls": False})
    call = answer["choices"][0]["message"]["tool_calls"][0]
    assert len(call["id"]) == 9, "the template writes Mistral's format, whose ids have nine characters"
    assert call["function"]["name"] in ("add", "now")


def test_a_template_of_an_unknown_format_takes_forced_calls_only(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.llm.get_tokenizer(), "chat_template", "{{ tools }}" + TEMPLATE)
    body = {"messages": MESSAGES, "tools": TOOLS[:1], "max_tokens": 80, "seed": 1}
    status, message = served.error("/v1/chat/completions", body)
    assert (status, "--tool-call-parser" in message) == (400, True)
    _, answer = served.ask(
        "/v1/chat/completions", body | {"tool_choice": "required", "parallel_tool_calls": False}
    )
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert set(json.loads(call["function"]["arguments"])) == {"a", "op"}


def test_reasoning_is_bound_by_no_grammar(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = served.app.state.service.settings
    monkeypatch.setattr(served.app.state.service, "settings", replace(settings, reasoning_parser=ThinkParser))
    monkeypatch.setattr(served.llm.get_tokenizer(), "chat_template", THINKING)
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["yes"]}}}
    body = {"messages": MESSAGES, "max_tokens": 30, "seed": 1, "response_format": form}
    off = served.ask("/v1/chat/completions", body | {"reasoning_effort": "none"})[1]["choices"][0]
    assert off["message"] == {"role": "assistant", "content": '"yes"'}
    on = served.ask("/v1/chat/completions", body | {"reasoning_effort": "high", "ignore_eos": True})[1][
        "choices"
    ][0]
    assert on["message"]["reasoning"], "it thinks, and no grammar is on what it thinks"
    assert on["message"]["content"] == ""
    assert on["finish_reason"] == "length"
    hidden = served.ask(
        "/v1/chat/completions", body | {"reasoning_effort": "high", "include_reasoning": False}
    )[1]
    assert "reasoning" not in hidden["choices"][0]["message"]
