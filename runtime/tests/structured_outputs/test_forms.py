"""Choices, grammars in EBNF and Lark's form, structural tags: which texts they allow. And vocabularies: the bytes of tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest
import tokenizers
from speccheck.grammars import accepts, compiled, sampled
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import specdec_zoo
from specdec import ConfigError
from specdec_runtime.structured_outputs.vocabulary import vocabulary_of

OBJECT: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/kind"}},
    "required": ["a"],
    "additionalProperties": False,
    "$defs": {"kind": {"enum": ["x", "y"]}},
}


def verdicts(keys: dict[str, Any], texts: list[str]) -> dict[str, bool]:
    grammar = compiled(keys)
    return {text: accepts(grammar, text) for text in texts}


def of(texts: dict[str, bool]) -> list[str]:
    return [text for text, is_allowed in texts.items() if is_allowed]


@pytest.mark.parametrize(
    ("grammar", "good", "bad"),
    [
        ('root ::= "a" item{2,4} "e"\nitem ::= "b" | "c"', ["abbe", "abcbce"], ["abe", "abbbbbe"]),
        ('root ::= name "z"\nname ::= [a-z]*', ["z", "abz", "zz"], ["", "ab"]),
        ('root ::= ("a" | "ab") "bc"', ["abc", "abbc"], ["bc", "ac"]),
        ('root ::= "a" root | "b"', ["b", "aaab"], ["a", "ba"]),
        ('root ::= "(" root ")" | [0-9]+', ["(12)", "((1))"], ["()", "(1"]),
        ('root ::= "\\u00e9" [\\u0041-\\u0043] "\\x41" "\\""', ['éBA"'], ["éBA", 'éDA"']),
        ('root ::= ws "x" ws\nws ::= [ \\n]*', [" x\n", "x"], ["x x"]),
        ('root ::= one-two\none-two ::= [^"\\]/] "/"', ["a/"], ["//", '"/', "]/"]),
        ("start: WORD (\" \" WORD)*\nWORD: /[a-z]+/", ["a b", "abc"], ["", "a  b"]),
        ('start: pair\npair: "(" pair ")" | "x"', ["((x))"], ["(x"]),
    ],
)  # fmt: skip
def test_grammars(grammar: str, good: list[str], bad: list[str]) -> None:
    assert of(verdicts({"grammar": grammar}, [*good, *bad])) == good
    tag = {"type": "tag", "begin": "<", "content": {"type": "grammar", "grammar": grammar}, "end": ">"}
    around = verdicts(
        {"structural_tag": {"type": "structural_tag", "format": tag}}, [f"<{t}>" for t in (*good, *bad)]
    )
    assert of(around) == [f"<{text}>" for text in good]


@pytest.mark.parametrize(
    "grammar", ["root ::= (", "root ::= missing", "other ::= 'a'", "start: missing", "x"]
)
def test_grammars_that_are_none(grammar: str) -> None:
    with pytest.raises(ConfigError, match="structured_outputs 'grammar' cannot be compiled"):
        compiled({"grammar": grammar})


def test_choices_may_begin_alike() -> None:
    texts = ["ab", "abc", "abcd", 'a"\\\n', "é日"]
    assert of(verdicts({"choice": texts}, [*texts, "a", "abcde", "abab", ""])) == texts


def call(name: str) -> dict[str, Any]:
    content = {"type": "json_schema", "json_schema": OBJECT, "max_whitespace_cnt": 2}
    return {"type": "tag", "begin": f'{{"name": "{name}", "p": ', "content": content, "end": "}"}


def marked(name: str) -> dict[str, Any]:
    return {
        "type": "tag",
        "begin": f"<f={name}>",
        "content": {"type": "json_schema", "json_schema": OBJECT},
        "end": "</f>",
    }


def word(text: str) -> dict[str, Any]:
    return {"type": "const_string", "value": text}


def regex(pattern: str) -> dict[str, Any]:
    return {"type": "regex", "pattern": pattern}


CALLS = {
    "type": "tags_with_separator",
    "tags": [call("f"), call("fg")],
    "separator": "; ",
    "at_least_one": True,
}
TAGS = {"triggers": ["<f"], "tags": [marked("a"), marked("ab")], "type": "triggered_tags"}
HIDDEN = {
    "type": "tag", "begin": "<think>", "content": {"type": "any_text", "excludes": ["</think>"]}, "end": "</think>",
}  # fmt: skip
KIND = {"type": "json_schema", "json_schema": OBJECT}
LETTERS = {"type": "tag", "begin": "a", "content": regex("[a-z]*"), "end": "z"}
LISTED = {"type": "tag", "begin": "[", "content": {"type": "json_schema", "json_schema": True}, "end": "]"}
ONE_CALL = '{"name": "f", "p": {"a": "x"}}'
ONE, TWO = '<f=a>{"a": "x"}</f>', '<f=ab>{"a":"y"}</f>'


@pytest.mark.parametrize(
    ("form", "good", "bad"),
    [
        (LETTERS, ["az", "abzz"], ["ab", "a"]),
        ({"type": "sequence", "elements": [HIDDEN, regex("\\n{0,2}"), regex("[ab\\n]+")]},
         ["<think>x</think>\n\n\na", "<think></thin</think>b"], ["<think>x</think>", "<think></think></think>a", "a"]),
        ({"type": "sequence", "elements": [{"type": "optional", "content": HIDDEN}, KIND]},
         ['<think>{</think>{"a": "x"}', '{ "a": "y"}'], ["<think>x</think>", '{"a": "z"}', "{}"]),
        ({"type": "or", "elements": [{"type": "json_schema", "json_schema": {"type": "object", "maxProperties": 1}}, CALLS]},
         ['{"name": 1}', '{"nam": "f"}', ONE_CALL, '{"name":"fg","p":{"a":"x"}}; {"name": "f", "p": {"a": "y"}}'],
         ['{"name": "f", "p": {"a": "z"}}', '{"name": "g", "p": {"a": "x"}}', f"{ONE_CALL};", "", '{  \n "name": 1}']),
        (TAGS, ["", "hi", ONE, f"hi {ONE} < {TWO} x<", f"<{TWO}{ONE}"], ["<f", "<f=c>", '<f=a>{"a": "z"}</f>', f"{ONE}<f"]),
        (TAGS | {"at_least_one": True}, [ONE, f"a{TWO}b{ONE}"], ["", "hi"]),
        (TAGS | {"stop_after_first": True}, ["", "hi", f"hi {ONE}"], [f"{ONE}{TWO}", f"{ONE} a"]),
        (TAGS | {"at_least_one": True, "stop_after_first": True}, [ONE, f"hi {ONE}"], ["", "hi", f"{ONE} a"]),
        (CALLS | {"at_least_one": False, "stop_after_first": True}, ["", ONE_CALL], ["{}"]),
        ({"type": "plus", "content": word("ab")}, ["ab", "abab"], ["", "aba"]),
        ({"type": "star", "content": {"type": "or", "elements": [word("a"), word("ab"), word("b")]}}, ["", "abb", "ba"], ["c"]),
        ({"type": "any_text"}, ["", 'a"\\\n日'], []),
        ({"type": "regex", "pattern": "[a-z]+", "excludes": ["bad"]}, ["good", "ba"], ["bad", "abade", ""]),
        ({"type": "tag", "begin": "[", "content": {"type": "json_schema", "json_schema": True}, "end": "]"},
         ["[1]", '[{"a":1}]'], ["1", "[]"]),
    ],
)  # fmt: skip
def test_structural_tags(form: dict[str, Any], good: list[str], bad: list[str]) -> None:
    tag = {"type": "structural_tag", "format": form}
    for given in (tag, json.dumps(tag)):
        assert of(verdicts({"structural_tag": given}, [*good, *bad])) == good
    assert all(
        accepts(compiled({"structural_tag": tag}), t)
        for t in sampled(compiled({"structural_tag": tag}), 3, 5)
    )


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ({"type": "qwen_xml_parameter"}, "'qwen_xml_parameter' is not supported: use one of const_string,"),
        (word("a") | {"more": 1}, "'more' is not supported in 'const_string': leave it out"),
        ({"type": "json_schema", "json_schema": OBJECT, "any_order": True}, "'any_order' is not supported"),
        ({"type": "or", "elements": []}, "allows no text"),
        (TAGS | {"triggers": ["<g"]}, "must begin with a trigger"),
        (TAGS | {"triggers": []}, "must begin with a trigger"),
        ({"type": "const_string"}, "cannot be compiled: KeyError: 'value'"),
        ({"type": "const_string", "value": 3}, "cannot be compiled"),
        ("x", "cannot be compiled"),
    ],
)  # fmt: skip
def test_structural_tags_that_are_refused(form: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=f"structured_outputs 'structural_tag'.*{told}"):
        compiled({"structural_tag": {"type": "structural_tag", "format": form}})


def tokenizer_of(decoder: Any, names: list[str]) -> PreTrainedTokenizerFast:
    inner = tokenizers.Tokenizer(
        tokenizers.models.BPE({name: i for i, name in enumerate(names)}, [], byte_fallback=True)
    )
    inner.decoder = decoder
    made = PreTrainedTokenizerFast(tokenizer_object=inner)
    made.add_tokens(["Ġ<call>"])
    return made


def test_vocabularies() -> None:
    names = ["a", "<0x0A>", "▁b", "é", "Ġc"]
    fallback = tokenizers.decoders.Sequence(
        [
            tokenizers.decoders.Replace("▁", " "),
            tokenizers.decoders.ByteFallback(),
            tokenizers.decoders.Fuse(),
        ]
    )
    pieces = vocabulary_of(tokenizer_of(fallback, names), 9, [0, 7])
    assert pieces.tokens[1:6] == [b"\n", b" b", "é".encode(), "Ġc".encode(), "Ġ<call>".encode()]
    assert (pieces.tokens[6], pieces.tokens[8], pieces.special_token_ids) == (b"", b"", [0, 7])
    levels = vocabulary_of(tokenizer_of(tokenizers.decoders.ByteLevel(), ["a", "Ċ", "Ġb", "Ã©", "Ã"]), 6, [0])
    assert levels.tokens[1:] == [b"\n", b" b", "é".encode(), b"\xc3", "Ġ<call>".encode()]


def test_a_published_tokenizers_bytes() -> None:
    tokenizer = AutoTokenizer.from_pretrained(specdec_zoo.path("target"))
    tokens = vocabulary_of(tokenizer, len(tokenizer), [tokenizer.eos_token_id]).tokens
    for text in ("def f(x):\n    return [x, 'é日😀']\n", "\t<a> {} \\ \x00"):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert b"".join(tokens[i] for i in ids).decode() == text
