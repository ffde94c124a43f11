"""Whitespace of JSON: a model that likes it comes to an end, and no text of ordinary JSON is lost."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from llguidance import LLMatcher
from speccheck.grammars import CHARACTERS, accepts, compiled, tokens_of_words

WORDS = ["{", "}", "[", "]", ":", ",", '"a"', "true", "\n", "<end>"]
OPEN, CLOSED = {"}": "{", "]": "["}, {"{": "}", "[": "]"}


def allowed(matcher: LLMatcher, words: list[str]) -> list[str]:
    bits = matcher.compute_bitmask()
    return [word for i, word in enumerate(words) if bits[i // 8] >> i % 8 & 1]


def schema(source: random.Random, depth: int = 3) -> dict[str, Any]:
    kind = source.choice(
        ["object", "array", "integer", "boolean", "null", "enum"] if depth else ["integer", "enum"]
    )
    if kind == "object":
        names = source.sample("abcdef", source.randint(1, 4))
        properties = {name: schema(source, depth - 1) for name in names}
        return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}
    if kind == "array":
        least = source.randint(0, 3)
        return {"type": "array", "items": schema(source, depth - 1), "minItems": least, "maxItems": least + 1}
    return {"enum": ["x", 1, None]} if kind == "enum" else {"type": kind}


def written(matcher: LLMatcher, blanks: str) -> str:
    """The text of a model that writes whitespace wherever it may, but for strings, and otherwise what closes soonest."""
    text = ""
    while len(text) < 20_000:
        characters = allowed(matcher, CHARACTERS)
        found = [blank for blank in blanks if blank in characters and text.count('"') % 2 == 0]
        if not found and "<end>" in characters:
            return text
        text += found[0] if found else next((c for c in '"}],:0' if c in characters), characters[0])
        assert matcher.consume_token(CHARACTERS.index(text[-1]))
    raise AssertionError(f"no end: {text[-40:]!r}")


@pytest.mark.sampled(40, slow=150)
@pytest.mark.parametrize("seed", range(500))
def test_a_model_that_likes_whitespace_ends(seed: int) -> None:
    source = random.Random(seed)
    made = {"type": "object", "properties": {"k": schema(source)}, "required": ["k"]}
    text = written(
        compiled({"json": {**made, "additionalProperties": False}}), source.choice([" ", "\n ", "\t", "\r\n"])
    )
    Draft202012Validator(made).validate(json.loads(text))


def test_free_objects_and_tags_end() -> None:
    tag = {"format": {"type": "json_schema", "json_schema": {"type": "array", "maxItems": 2}}}
    for keys in ({"json_object": True}, {"structural_tag": json.dumps(tag)}):
        for blank in " \n\t\r":
            json.loads(written(compiled(keys), blank))


@pytest.mark.parametrize("indent", [None, 0, 1, 2, 3, 4, 8, "\t", " \t"])
def test_whatever_json_dumps_writes(indent: int | str | None) -> None:
    value: Any = {"x": [], "y": {}}
    for depth in range(9):
        value = {"a": [value, depth, "s"], "b": None}
        if isinstance(indent, int) and indent * (2 * depth + 4) > 80:
            break
        assert accepts(compiled({"json_object": True}), json.dumps(value, indent=indent)), depth


def continuations(stack: str, last: str) -> set[str]:
    """What may follow in a JSON object: the open brackets, and the last part that is not whitespace."""
    if not stack:
        return {"<end>"} if last else {"{"}
    values, end = {'"a"', "true", "{", "["}, {CLOSED[stack[-1]]}
    if stack[-1] == "[":
        return (values | (end if last == "[" else set()) if last in ("[", ",") else {",", *end}) | {"\n"}
    if last in ("{", ","):
        return {'"a"', "\n"} | (end if last == "{" else set())
    return {"key": {":", "\n"}, ":": values | {"\n"}}.get(last, {",", "\n", *end})


@pytest.mark.parametrize("most", [7, pytest.param(9, marks=pytest.mark.full)])
def test_no_text_is_lost(most: int) -> None:
    """Every text of at most so many words, word by word, against a parser: `"a"` may come again, as `json.loads` has it."""
    seen = 0

    def follow(matcher: LLMatcher, stack: str, last: str, length: int) -> None:
        nonlocal seen
        expected = continuations(stack, last)
        assert set(allowed(matcher, WORDS)) == expected
        seen += 1
        for word in expected - {"<end>"} if length < most else ():
            inner = matcher.deep_copy()
            assert inner.consume_token(WORDS.index(word))
            below = stack + word if word in CLOSED else stack[:-1] if word in OPEN else stack
            is_key = word == '"a"' and stack.endswith("{") and last in ("{", ",")
            follow(inner, below, last if word == "\n" else "key" if is_key else word, length + 1)

    follow(compiled({"json_object": True}, tokens_of_words(WORDS)), "", "", 0)
    assert seen > 500
