"""Text with unpaired surrogates, which no tokenizer can encode: a clear error wherever it comes in."""

from __future__ import annotations

import asyncio

import pytest
from speccheck.engines import greedy, letter_tokenizer, make_llm

from specdec import LLM, AsyncLLM, ConfigError, SamplingParams

LONE = "abcd\ud800ab"
TOLD = r"has the unpaired surrogate '\\ud800' at index 4, which UTF-8 cannot encode"


@pytest.fixture(scope="module")
def llm(subject) -> LLM:
    tokenizer = letter_tokenizer()
    tokenizer.chat_template = "{{ messages[-1].content }}{{ thinking }}{{ tools[0].name if tools }}"
    return make_llm(subject.model, tokenizer=tokenizer)


@pytest.mark.parametrize(
    ("prompt", "where"),
    [
        (LONE, "the prompt"),
        (["ab", LONE], r"prompts\[1\]: the prompt"),
        ({"prompt": LONE}, "the prompt"),
        ({"prompt": LONE, "prompt_token_ids": [1]}, "the prompt"),
    ],
)
def test_prompts(llm: LLM, prompt, where: str) -> None:
    with pytest.raises(ConfigError, match=f"^{where} {TOLD}"):
        llm.generate(prompt, greedy(2))


def test_streams(llm: LLM) -> None:
    with pytest.raises(ConfigError, match=f"^the prompt {TOLD}"):
        next(llm.stream(LONE, greedy(2)))


@pytest.mark.parametrize("name", ["stop", "bad_words"])
def test_sampling_parameters(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"SamplingParams: '{name}' = .*: \[1\] {TOLD}"):
        SamplingParams(**{name: ["ab", LONE]})


def test_a_stop_string() -> None:
    with pytest.raises(ConfigError, match=f"'stop' = .* {TOLD}"):
        SamplingParams(stop=LONE)


@pytest.mark.parametrize(
    "given", [{"regex": LONE}, {"grammar": LONE}, {"choice": ["a", LONE]}, {"json": LONE}]
)
def test_structured_outputs(given: dict) -> None:
    with pytest.raises(ConfigError, match=f"StructuredOutputsParams: {next(iter(given))} {TOLD}"):
        SamplingParams(structured_outputs=given)


@pytest.mark.parametrize(
    ("message", "where"),
    [
        ({"role": "user", "content": LONE}, r"messages\[1\]\['content'\]"),
        ({"role": "user", "content": [{"type": "text", "text": LONE}]}, r"messages\[1\]\['content'\]"),
        ({"role": LONE, "content": "ab"}, r"messages\[1\]\['role'\]"),
        ({"role": "user", "content": "ab", "extra": {"a": [LONE]}}, r"messages\[1\]\['extra'\]"),
    ],
)
def test_messages(llm: LLM, message: dict, where: str) -> None:
    with pytest.raises(ConfigError, match=f"^{where} {TOLD}"):
        llm.chat([{"role": "user", "content": "ab"}, message], greedy(2))


@pytest.mark.parametrize(
    "options", [{"thinking": LONE}, {"tools": [{"name": LONE}]}, {"chat_template": LONE}]
)
def test_options_of_chat(llm: LLM, options: dict) -> None:
    with pytest.raises(
        ConfigError, match=r"^the text that the chat template made has the unpaired surrogate"
    ):
        llm.chat([{"role": "user", "content": "ab"}], greedy(2), **options)


def test_async_llm(llm: LLM) -> None:
    asynchronous = AsyncLLM("zoo", dtype="float32")
    try:
        with pytest.raises(ConfigError, match=f"^the prompt {TOLD}"):
            asynchronous.generate(LONE)
        assert asyncio.run(anext(asynchronous.generate("def", greedy(1)))).finished
    finally:
        asynchronous.shutdown()
