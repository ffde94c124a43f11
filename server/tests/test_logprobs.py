"""Log probabilities of tokens that are parts of characters: bytes join to the text, offsets lie in it, nothing collapses."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from servercheck.served import Served
from speccheck.engines import make_llm
from speccheck.spelling import ids_of, llama_tokenizer, saying, speaker

from specdec import LLM, Logprob
from specdec_server.logprobs import CompletionLogprobs, chat_logprobs

TEXT = "é▓ 😀😀 \ufffd漢字!"
ONLY = {"structured_outputs": {"choice": [TEXT]}, "temperature": 0, "max_tokens": 60}
CHAT = {"messages": [{"role": "user", "content": "hi"}], "logprobs": True, "top_logprobs": 5} | ONLY
PLAIN = {"prompt": "x = 😀", "logprobs": 4} | ONLY


def pieces(served: Served, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    events = served.events(path, body | {"stream": True})
    return [choice for event in events[:-1] for choice in json.loads(event)["choices"]]


def merged(choices: list[dict[str, Any]]) -> dict[str, list[Any]]:
    told = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    return {key: [item for part in told for item in part[key]] for key in told[0]}


def check_chat(content: list[dict[str, Any]]) -> None:
    assert bytes(byte for token in content for byte in token["bytes"]).decode() == TEXT
    assert len(content) > len(TEXT)
    for token in content:
        assert len(token["top_logprobs"]) == 5


def test_bytes_of_a_message_join_to_it(served: Served) -> None:
    (choice,) = served.ask("/v1/chat/completions", CHAT)[1]["choices"]
    assert choice["message"]["content"] == TEXT
    check_chat(choice["logprobs"]["content"])
    streamed = pieces(served, "/v1/chat/completions", CHAT)
    check_chat(
        [token for choice in streamed if choice["logprobs"] for token in choice["logprobs"]["content"]]
    )


def check_completion(told: dict[str, list[Any]], text: str) -> None:
    for token, offset, top in zip(told["tokens"], told["text_offset"], told["top_logprobs"], strict=True):
        if top is not None:
            assert text[offset : offset + len(token)] == token or token == "<|endoftext|>"
            assert len(top) in (4, 5)
            assert token in top
        assert offset <= len(text)
    assert all(a <= b for a, b in pairwise(told["text_offset"]))


@pytest.mark.parametrize("echo", [False, True])
def test_offsets_lie_in_the_text(served: Served, llm: LLM, echo: bool) -> None:
    body = PLAIN | {"echo": echo}
    (choice,) = served.ask("/v1/completions", body)[1]["choices"]
    text = "x = 😀" * echo + TEXT
    assert choice["text"] == text
    check_completion(choice["logprobs"], text)
    num_prompt = len(llm.get_tokenizer()("x = 😀")["input_ids"]) if echo else 0
    assert choice["logprobs"]["text_offset"][num_prompt] == 5 * echo
    streamed = pieces(served, "/v1/completions", body)
    assert "".join(choice["text"] for choice in streamed) == text
    check_completion(merged(streamed), text)
    assert merged(streamed)["text_offset"] == choice["logprobs"]["text_offset"]


def test_offsets_of_tokens_past_a_stop_string_are_its_end(served: Served) -> None:
    (choice,) = served.ask("/v1/completions", PLAIN | {"stop": "😀 \ufffd"})[1]["choices"]
    assert choice["text"] == "é▓ 😀"
    assert max(choice["logprobs"]["text_offset"]) == len(choice["text"])


def test_blanks_of_sentencepiece_are_told() -> None:
    tokenizer = llama_tokenizer()
    said = ids_of(tokenizer, "▁Hi", "▁", "▁x", b"\xc3\xa9", "Hi", "▁Hi")
    model = make_llm(speaker(tokenizer), tokenizer=tokenizer)
    for prompt, text in (("x", " Hi  xéHi Hi"), ("", "Hi  xéHi Hi")):
        ids = [1, *ids_of(tokenizer, *prompt)]
        [output] = model.generate([{"prompt_token_ids": ids}], saying(said, logprobs=5, prompt_logprobs=5))
        sample = output.outputs[0]
        assert sample.text == text
        assert sample.logprobs is not None
        content = chat_logprobs(said, sample.logprobs, 5)["content"]
        assert bytes(byte for token in content for byte in token["bytes"]).decode() == text
        told = CompletionLogprobs(5)(said, sample.logprobs, len(text))
        assert "".join(told["tokens"]) == text
        assert told["text_offset"] == [sum(map(len, told["tokens"][:place])) for place in range(len(said))]


def test_alternatives_with_equal_text_are_all_told() -> None:
    entry = {
        7: Logprob(-1.0, 1, "", b"\xe2"), 8: Logprob(-2.0, 2, "", b"\xc3"), 9: Logprob(-3.0, 3, "A", b"A"),
        10: Logprob(-4.0, 4, "A", b"A"), 11: Logprob(-5.0, 5, "", b"\xf0"),
    }  # fmt: skip
    (top,) = CompletionLogprobs(5)([7], [entry])["top_logprobs"]
    assert top == {"": -1.0, "token_id:8": -2.0, "A": -3.0, "token_id:10": -4.0, "token_id:11": -5.0}


def test_forbidden_tokens_have_a_number_that_json_can_write() -> None:
    entry = {7: Logprob(float("-inf"), 2, "A", b"A")}
    assert CompletionLogprobs(1)([7], [entry])["token_logprobs"] == [-9999.0]
    (token,) = chat_logprobs([7], [entry], 1)["content"]
    assert token["logprob"] == -9999.0


@pytest.mark.parametrize(
    ("text", "tokens", "offsets"),
    [
        ("Hi x", ["Hi", " x"], [0, 0, 2]),  # the first token is one that the tokenizer added
        ("<s>Hi x", ["Hi", " x"], [0, 3, 5]),
        ("Hi</s> x", ["Hi", "</s>", " x"], [0, 0, 2, 6]),
        ("Hi x", ["Hi", "</s>", " x"], [0, 0, 2, 2]),
    ],
)
def test_offsets_of_a_prompt_count_what_is_in_its_text(text, tokens, offsets) -> None:
    names = [Logprob(-1.0, 1, token, b"" if token == "</s>" else token.encode()) for token in tokens]
    entries = [None, *({place: name} for place, name in enumerate(names, 1))]
    rows = CompletionLogprobs(1)
    told = rows.of_prompt("<s>", range(len(entries)), entries, text)
    assert told["text_offset"] == offsets
    assert told["tokens"] == ["<s>", *tokens]
    assert rows([1], [{1: names[0]}])["text_offset"] == [len(text)]


def test_tokens_as_token_ids(served: Served) -> None:
    more = {"return_tokens_as_token_ids": True, "return_token_ids": True}
    (choice,) = served.ask("/v1/completions", PLAIN | {"echo": True, "max_tokens": 4} | more)[1]["choices"]
    ids = [*choice["prompt_token_ids"], *choice["token_ids"]]
    assert len(choice["token_ids"]) == 4
    assert choice["logprobs"]["tokens"] == [f"token_id:{token_id}" for token_id in ids]
    assert all(name.startswith("token_id:") for top in choice["logprobs"]["top_logprobs"][1:] for name in top)
    (choice,) = served.ask("/v1/chat/completions", CHAT | more)[1]["choices"]
    content = choice["logprobs"]["content"]
    assert [token["token"] for token in content] == [f"token_id:{i}" for i in choice["token_ids"]]
    check_chat(content)
    for token in content:
        names = [other["token"] for other in token["top_logprobs"]]
        assert len({int(name.removeprefix("token_id:")) for name in names}) == 5
