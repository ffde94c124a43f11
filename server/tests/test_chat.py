import json

import pytest
from openai import BadRequestError, OpenAI
from servercheck.served import Served

from specdec import LLM, SamplingParams

MESSAGES = [{"role": "system", "content": "Write code."}, {"role": "user", "content": "def main("}]
WRITTEN = "<system>Write code.\n<user>def main(\n<assistant>"


def test_the_message_is_what_follows_the_template(client: OpenAI, llm: LLM) -> None:
    expected = llm.generate(WRITTEN, SamplingParams(temperature=0.8, seed=4, max_tokens=20))[0].outputs[0]
    got = client.chat.completions.create(
        model="zoo", messages=MESSAGES, temperature=0.8, seed=4, max_completion_tokens=20
    )
    assert got.choices[0].message.content == expected.text
    assert got.choices[0].message.role == "assistant"
    assert got.choices[0].finish_reason == "length"
    assert got.object == "chat.completion"


def test_a_stream_is_the_same_message_in_pieces(client: OpenAI) -> None:
    asked = {"model": "zoo", "messages": MESSAGES, "temperature": 0.8, "seed": 4, "max_tokens": 20, "n": 2}
    whole = client.chat.completions.create(**asked)
    texts, roles = ["", ""], ["", ""]
    for chunk in client.chat.completions.create(**asked, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            roles[choice.index] += choice.delta.role or ""
    assert texts == [choice.message.content for choice in whole.choices]
    assert roles == ["assistant", "assistant"]


def test_a_stream_tells_of_the_prompt_in_its_first_piece(served: Served) -> None:
    body = {
        "messages": MESSAGES,
        "max_tokens": 3,
        "stream": True,
        "return_token_ids": True,
        "prompt_logprobs": 0,
    }
    events = [json.loads(event) for event in served.events("/v1/chat/completions", body)[:-1]]
    ids = events[0]["prompt_token_ids"]
    assert served.ask("/detokenize", {"tokens": ids})[1]["prompt"] == WRITTEN
    assert len(events[0]["prompt_logprobs"]) == len(ids)
    assert all("prompt_token_ids" not in event for event in events[1:])
    assert sum(len(event["choices"][0]["token_ids"]) for event in events) == 3


def test_parts_of_text_are_joined_and_the_last_message_can_be_continued(served: Served, llm: LLM) -> None:
    parts = [{"type": "text", "text": "Write"}, {"type": "text", "text": "code."}]
    body = {
        "messages": [{"role": "user", "content": parts}, {"role": "assistant", "content": "def main("}],
        "continue_final_message": True,
        "temperature": 0,
        "max_tokens": 8,
    }
    expected = llm.generate(
        "<user>Write\ncode.\n<assistant>def main(", SamplingParams(temperature=0.0, max_tokens=8)
    )
    status, answer = served.ask("/v1/chat/completions", body)
    assert status == 200
    assert answer["choices"][0]["message"]["content"] == expected[0].outputs[0].text


def test_log_probabilities_have_their_form(client: OpenAI) -> None:
    got = client.chat.completions.create(
        model="zoo", messages=MESSAGES, temperature=0, max_tokens=5, logprobs=True, top_logprobs=3
    ).choices[0]
    assert got.logprobs is not None
    assert got.logprobs.content is not None
    assert "".join(token.token for token in got.logprobs.content) == got.message.content
    for token in got.logprobs.content:
        assert [top.logprob for top in token.top_logprobs] == sorted(
            (top.logprob for top in token.top_logprobs), reverse=True
        )
        assert token.top_logprobs[0].logprob == pytest.approx(token.logprob)
        assert bytes(token.bytes or []).decode() == token.token


def test_json_objects_are_kept_to(client: OpenAI) -> None:
    got = client.chat.completions.create(
        model="zoo",
        messages=MESSAGES,
        max_tokens=8,
        seed=2,
        response_format={"type": "json_object"},
    )
    assert (got.choices[0].message.content or "").lstrip().startswith("{")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"content": "x"}]}, "no role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "image_url"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]: type 'web_search'"),
        (
            {"tools": [{"type": "function", "function": {"name": "f g"}}]},
            "tools[0]: the name must be letters",
        ),
        ({"tools": [{"type": "function", "function": {"name": "f"}}] * 2}, "two have the same name"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "any"}, "tool_choice"),
        (
            {
                "tools": [{"type": "function", "function": {"name": "f"}}],
                "tool_choice": {"type": "function", "function": {"name": "g"}},
            },
            "'g' is none of the tools: f",
        ),
        ({"reasoning_effort": "high"}, "no such setting"),
        ({"functions": []}, "use tools"),
        ({"top_logprobs": 2}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "--max-logprobs"),
        (
            {"chat_template_kwargs": {"chat_template": "{{ 1 }}"}},
            "'chat_template' is not a template variable",
        ),
        ({"chat_template_kwargs": {"request_id": "x"}}, "'request_id' is not a template variable"),
        ({"chat_template_kwargs": {"enable_thinkin": True}}, "'enable_thinkin' is not a template variable"),
        ({"tool_choice": "required"}, "tools"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "text": "x"}]}]}, "image_url"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "two names"),
        (
            {"chat_template_kwargs": {"add_generation_prompt": True}, "continue_final_message": True},
            "template",
        ),
    ],
)
def test_what_is_wrong_is_told(served: Served, change: dict, message: str) -> None:
    status, told = served.error("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 2} | change)
    assert status == 400, told
    assert message in told


def test_a_model_without_a_template_says_so(
    client: OpenAI, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.llm.get_tokenizer(), "chat_template", None)
    with pytest.raises(BadRequestError, match="chat template"):
        client.chat.completions.create(model="zoo", messages=MESSAGES)
