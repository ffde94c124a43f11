"""`thinking_token_budget` and counts of reasoning tokens, in every kind of response."""

import json
from collections.abc import Iterator

import pytest
from openai import OpenAI
from servercheck.served import TEMPLATE, Served, serving

from specdec_server import Settings
from specdec_server.reasoning.think import DeepSeekR1Parser, HarmonyReasoningParser, ThinkParser

CLOSE = "</think>"
THINKS = TEMPLATE.replace("<assistant>{% endif %}", "<assistant><think>{% endif %}")
SENTENCE = "So."
NO_MARKERS = dict.fromkeys((31, 641, 1944), -100)  # "<", " <" and "</"
NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1}


@pytest.fixture(scope="module")
def thinking() -> Iterator[Served]:
    markers = {**ThinkParser.markers(), "reasoning_end_str": SENTENCE + CLOSE}
    settings = Settings(model_names=("zoo",), reasoning_parser=ThinkParser, log_every_s=0.0)
    with serving(
        settings, template=THINKS, reasoning_config=markers, speculative_config=NGRAM, max_model_len=256
    ) as found:
        yield found


@pytest.fixture(scope="module")
def llm(thinking: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{thinking.url}/v1", api_key="EMPTY", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("temperature", [0, 0.8])
@pytest.mark.sampled(4, slow=20)
@pytest.mark.parametrize("budget", range(25))
def test_reasoning_ends_at_its_budget(thinking: Served, llm: OpenAI, budget: int, temperature: float) -> None:
    tokenizer = thinking.llm.get_tokenizer()
    assert tokenizer is not None
    forced = [
        id for text in (SENTENCE, CLOSE) for id in tokenizer(text, add_special_tokens=False)["input_ids"]
    ]
    num_sentence = len(tokenizer(SENTENCE, add_special_tokens=False)["input_ids"])
    asked = {"temperature": temperature, "seed": budget, "max_tokens": budget + len(forced) + 8}
    words = [id for id in range(2000) if tokenizer.decode([id]).strip().isalnum()]  # no other marker comes
    extra = {"thinking_token_budget": budget, "ignore_eos": True, "allowed_token_ids": words}
    messages = [{"role": "user", "content": "def main(): return 1, def main(): return"}]
    whole = llm.chat.completions.create(
        model="zoo", messages=messages, **asked, extra_body=extra | {"return_token_ids": True}
    )  # type: ignore[call-overload]
    choice, details = whole.choices[0], whole.usage.completion_tokens_details
    ids = choice.model_extra["token_ids"]
    assert ids[budget : budget + len(forced)] == forced
    assert choice.message.model_extra["reasoning"] == (tokenizer.decode(ids[:budget]) + SENTENCE).strip()
    assert choice.message.content == tokenizer.decode(ids[budget + len(forced) :]).lstrip()
    assert details.reasoning_tokens == budget + num_sentence
    stream = llm.chat.completions.create(  # type: ignore[call-overload]
        model="zoo",
        messages=messages,
        **asked,
        extra_body=extra,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    texts = ["".join(c.choices[0].delta.model_extra.get("reasoning", "") for c in chunks if c.choices)]
    texts.append("".join(c.choices[0].delta.content or "" for c in chunks if c.choices))
    assert texts == [choice.message.model_extra["reasoning"], choice.message.content]
    assert chunks[-1].usage.completion_tokens_details.reasoning_tokens == details.reasoning_tokens
    asked["max_output_tokens"] = asked.pop("max_tokens")
    answer = llm.responses.create(  # type: ignore[call-overload]
        model="zoo", input=messages[0]["content"], temperature=temperature,
        max_output_tokens=asked["max_output_tokens"],
        extra_body=extra | {"seed": budget},
    )  # fmt: skip
    assert answer.output_text == choice.message.content
    assert answer.usage.output_tokens_details.reasoning_tokens == details.reasoning_tokens


def test_completions_have_budgets_too(thinking: Served) -> None:
    body = {
        "prompt": "<assistant><think>",
        "temperature": 0,
        "max_tokens": 20,
        "thinking_token_budget": 4,
        "logit_bias": NO_MARKERS,
    }
    _, answer = thinking.ask("/v1/completions", body)
    assert CLOSE in answer["choices"][0]["text"]
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == 6
    _, answer = thinking.ask("/v1/completions", body | {"prompt": "def main("})
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0


def test_a_budget_with_a_schema(thinking: Served) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["yes"]}}}
    body = {
        "messages": [{"role": "user", "content": "x"}],
        "max_tokens": 60,
        "response_format": form,
        "seed": 1,
    }
    body["logit_bias"] = NO_MARKERS
    _, answer = thinking.ask("/v1/chat/completions", body | {"thinking_token_budget": 5, "temperature": 0.8})
    message = answer["choices"][0]["message"]
    assert json.loads(message["content"]) == "yes"
    assert message["reasoning"].endswith(SENTENCE)


def test_a_budget_without_markers_is_refused(served: Served) -> None:
    status, told = served.error("/v1/completions", {"prompt": "x", "thinking_token_budget": 3})
    assert status == 400
    assert "--reasoning-parser" in told


def test_markers_of_the_formats() -> None:
    assert DeepSeekR1Parser.markers()["is_always_open"]
    assert HarmonyReasoningParser.markers()["reasoning_end_str"] == "<|end|>"
