"""What clients send without meaning it, and what errors tell them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai import BadRequestError, OpenAI
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import response_create_params
from servercheck.served import Served

USER = {"role": "user", "content": "def main("}
ASKED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [USER], "max_tokens": 2},
    "/v1/completions": {"prompt": "def main(", "max_tokens": 2},
    "/v1/responses": {"input": "def main(", "max_output_tokens": 2},
    "/tokenize": {"prompt": "def main("},
}
OPENAI = {
    "/v1/chat/completions": chat_create_params.CompletionCreateParamsBase,
    "/v1/completions": completion_create_params.CompletionCreateParamsBase,
    "/v1/responses": response_create_params.ResponseCreateParamsBase,
}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.mark.parametrize("path", ASKED)
def test_every_optional_field_may_be_null(served: Served, path: str) -> None:
    """The names are those of OpenAI's own client."""
    names = {*OPENAI[path].__annotations__} if path in OPENAI else {"add_special_tokens", "return_token_strs"}
    names |= {"guided_json", "functions", "function_call", "audio", "web_search_options", "stream_options"}
    body = dict.fromkeys(sorted(names - {*ASKED[path]})) | ASKED[path]
    status, answer = served.ask(path, body)
    assert status == 200, answer
    assert served.error(path, body | {"functions": [1]})[0] == 400


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "x", "tool_calls": None, "function_call": None, "audio": None, "refusal": None},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        ]},
        {"role": "user", "content": "x", "name": None},
    ],
)  # fmt: skip
def test_fields_of_messages_may_be_null(served: Served, message: dict[str, Any]) -> None:
    status, answer = served.ask(
        "/v1/chat/completions", {"messages": [USER, message, USER], "max_tokens": 2, "tools": [TOOL]}
    )
    assert status == 200, answer
    assert (
        "None"
        not in served.ask("/tokenize", {"messages": [message], "return_token_strs": True})[1]["token_strs"]
    )


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ({"role": "user", "content": None}, "messages[1]: content is null; a message of the role 'user'"),
        ({"role": "system"}, "messages[1]: content is null; a message of the role 'system'"),
        ({"role": "tool", "content": None, "tool_call_id": "x"}, "messages[1]: content is null"),
        ({"role": "usr", "content": "x"}, "messages[1]: the role 'usr' is none of system, developer, user"),
        ({"role": "User", "content": "x"}, "messages[1]: the role 'User' is none of"),
        ({"content": "x"}, "messages[1] has no role"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
def test_a_wrong_message_is_named_with_its_index(
    served: Served, path: str, message: dict[str, Any], told: str
) -> None:
    status, answer = served.error(path, {"messages": [USER, message]})
    assert (status, told in answer) == (400, True), answer


def test_a_role_that_the_template_spells_is_known(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"messages": [{"role": "ipython", "content": "x"}], "max_tokens": 2}
    assert served.error("/v1/chat/completions", body)[0] == 400
    tokenizer = served.llm.get_tokenizer()
    assert tokenizer is not None
    template = "{% if messages[0].role == 'ipython' %}ran {% endif %}{{ messages[0].content }}"
    monkeypatch.setattr(tokenizer, "chat_template", template)
    assert served.ask("/v1/chat/completions", body)[0] == 200


def test_a_wrong_role_of_an_item_is_named_with_its_index(served: Served) -> None:
    item = {"role": "usr", "content": "x"}
    status, told = served.error("/v1/responses", {"input": [USER, item]})
    assert (status, told.startswith("input[1]: the role 'usr' is none of")) == (400, True), told


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses"])
@pytest.mark.parametrize("length", [2000, 200_000])
def test_a_prompt_that_is_too_long_has_openais_code(served: Served, path: str, length: int) -> None:
    """Whether its tokens or its characters are too many."""
    text = "x y " * length
    given = {"messages": [{"role": "user", "content": text}], "prompt": text, "input": text}
    body = {name: value for name, value in given.items() if name in ASKED[path]}
    status, answer = served.ask(path, body)
    error = answer["error"]
    assert (status, error["code"], error["type"]) == (400, "context_length_exceeded", "invalid_request_error")
    assert "max_model_len is 1024" in error["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses"])
@pytest.mark.parametrize("is_streaming", [False, True])
def test_max_tokens_beyond_the_context_are_refused(served: Served, path: str, is_streaming: bool) -> None:
    (name,) = {"max_tokens", "max_output_tokens"} & {*ASKED[path]}
    for many in (1024, 10**9, 10**30):
        status, answer = served.ask(path, ASKED[path] | {name: many, "stream": is_streaming})
        error = answer["error"]
        assert (status, error["code"]) == (400, "context_length_exceeded")
        assert "max_model_len is 1024" in error["message"]
        assert f"{many}" in error["message"]
    prompt = served.ask("/tokenize", {"prompt": "def main("})[1]["count"]
    most = {"prompt": "def main(", "max_tokens": 1024 - prompt, "stop": "\n"}
    assert served.ask("/v1/completions", most)[0] == 200
    assert served.ask("/v1/completions", most | {"max_tokens": 1025 - prompt})[0] == 400
    long = {"prompt": [300] * 1020}  # what nobody asked for is no reason to refuse
    assert served.ask("/v1/completions", long)[1]["usage"]["completion_tokens"] == 4


def test_a_schema_of_the_wrong_type_names_the_right_one(served: Served) -> None:
    form = {"type": "json_object", "schema": {"type": "object"}}
    status, told = served.error("/v1/chat/completions", {"messages": [USER], "response_format": form})
    assert status == 400
    assert "json_schema" in told
    assert "'schema': ..." in told


@pytest.mark.parametrize(
    "wrong",
    [{"temperature": -1}, {"top_p": 2}, {"stop": ""}, {"min_tokens": 9}, {"top_p": 2, "min_p": 2}, {"bad_words": [""]},
     {"structured_outputs": {"json": {}, "regex": "a"}}, {"structured_outputs": {"other": 1}}, {"logit_bias": {"99999": 1}},
     {"priority": 3}, {"n": 0}, {"allowed_token_ids": []}, {"speculative": {"num_speculative_tokens": -1}}],
    ids=str,
)  # fmt: skip
def test_errors_do_not_name_classes(served: Served, wrong: dict[str, Any]) -> None:
    status, answer = served.ask("/v1/completions", {"prompt": "x", "max_tokens": 4} | wrong)
    assert status == 400
    message = answer["error"]["message"]
    assert not any(name in message for name in ("SamplingParams", "StructuredOutputsParams", "Error:")), (
        message
    )


def test_an_error_quotes_little_of_what_was_sent(served: Served) -> None:
    for body in ({"model": "x" * 100_000}, {"messages": [{"role": "x" * 100_000, "content": ""}]}):
        status, answer = served.ask("/v1/chat/completions", ASKED["/v1/chat/completions"] | body)
        assert status in (400, 404)
        assert len(json.dumps(answer)) < 4000


def test_no_delta_is_empty(client: OpenAI, served: Served) -> None:
    """The parser holds the text of a call until its name is complete; what belongs to it comes with the next delta."""
    tools: Any = [TOOL]
    asked: dict[str, Any] = {"model": "zoo", "messages": [USER], "tools": tools, "max_tokens": 60}
    forced: dict[str, Any] = {"tool_choice": "required"}
    more = {"return_token_ids": True, "return_draft_steps": True}
    for extra in ({}, more):
        whole = client.chat.completions.create(**asked, **forced, temperature=0, extra_body=extra)
        chunks = list(
            client.chat.completions.create(
                **asked, **forced, temperature=0, stream=True, logprobs=True, extra_body=extra
            )
        )
        choices = [chunk.choices[0] for chunk in chunks]
        assert choices[0].delta.role == "assistant"
        for choice in choices[1:]:
            delta = choice.delta
            assert delta.content or delta.tool_calls or choice.finish_reason, choice
        assert whole.choices[0].message.tool_calls
        entries = [entry for choice in choices if choice.logprobs for entry in choice.logprobs.content or ()]
        assert len(entries) == whole.usage.completion_tokens
        if extra:
            ids = [i for choice in choices for i in choice.model_extra.get("token_ids", ())]
            assert ids == whole.choices[0].model_extra["token_ids"]
            steps = [step for choice in choices for step in choice.model_extra.get("draft_steps", ())]
            assert [i for step in steps for i in step["token_ids"]] == ids


def test_the_official_client_reads_the_code(client: OpenAI) -> None:
    with pytest.raises(BadRequestError) as caught:
        client.chat.completions.create(model="zoo", messages=[USER], max_tokens=5000)  # type: ignore[list-item]
    assert caught.value.code == "context_length_exceeded"
