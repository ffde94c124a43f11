"""Schemas that would not be held to are refused, naming the keyword; those that are taken are held to."""

from __future__ import annotations

import json
from typing import Any

import pytest
import xgrammar

from specdec import ConfigError
from specdec.grammar.language import can_end
from specdec.grammar.reference import resolved
from specdec.grammar.rewriting import marked_string
from specdec.grammar.schema import check_schema, supported_part

LETTERS = [chr(i) for i in range(32, 127)] + ["<end>"]
END = len(LETTERS) - 1
FACTS = xgrammar.TokenizerInfo(LETTERS, vocab_type=xgrammar.VocabType.RAW, stop_token_ids=[END])
COMPILER = xgrammar.GrammarCompiler(FACTS, max_threads=1)

KIND_A = {"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]}
KIND_B = {
    "type": "object",
    "properties": {"k": {"const": "b"}, "x": {"type": "integer"}},
    "required": ["k", "x"],
}
UNION = {"oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}], "$defs": {"A": KIND_A, "B": KIND_B}}

REFUSED: list[tuple[Any, str]] = [
    ({"$ref": "http://example.org/x.json"}, r"'\$ref' at # leads to 'http"),
    ({"$ref": "x.json#/a"}, r"'\$ref'"),
    ({"$ref": "#anchor"}, r"'\$ref'"),
    ({"$ref": "#/$defs/x"}, "not in the schema"),
    ({"type": "array", "items": {"$ref": "file:///etc/passwd"}}, r"'\$ref' at #/items"),
    ({"not": {"type": "string"}}, "'not' at #"),
    ({"if": {"type": "integer"}, "then": {"minimum": 3}}, "'if'"),
    ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, "'uniqueItems'"),
    ({"type": "array", "contains": {"type": "integer"}}, "'contains'"),
    ({"type": "object", "dependentRequired": {"a": ["b"]}}, "'dependentRequired'"),
    ({"type": "string", "format": "regex"}, "'format'"),
    ({"type": "string", "pattern": "^a+$", "minLength": 2}, "'minLength'"),
    ({"minimum": 3}, "'minimum' at # is enforced only beside 'type'"),
    ({"minLength": 3}, "'minLength'"),
    ({"type": "number", "multipleOf": 0.5}, "'multipleOf'"),
    ({"type": "number", "multipleOf": 2}, "'multipleOf'"),
    ({"type": "object", "required": ["a"]}, "'required' at # names 'a'"),
    ({"type": "object", "properties": {"b": {}}, "propertyNames": {"pattern": "^a$"}}, "'propertyNames'"),
    ({"type": "string", "enum": ["a", 1]}, "'enum' at # has 1"),
    ({"type": "string", "anyOf": [{"type": "string"}]}, "'type' at # is not supported beside 'anyOf'"),
    ({"$ref": "#/$defs/x", "minimum": 5, "$defs": {"x": {"type": "integer"}}}, r"'minimum' at #"),
    ({"allOf": [{"type": "string"}, {"minLength": 2}]}, "'allOf'"),
    ({"oneOf": [{"type": "integer", "minimum": 0}, {"type": "integer", "maximum": 10}]}, "'oneOf'"),
    (
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1e-6},
        "'exclusiveMinimum' at # and the other",
    ),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "'oneOf'"),
    ({"oneOf": [{"const": 1}, {"enum": [0, 1.0]}]}, "'oneOf'"),
    ({"properties": {"a": {"properties": {"b": {"not": {}}}}}}, "'not' at #/properties/a/properties/b"),
    ({"$ref": "#/$defs/x", "$defs": {"x": {"not": {}}}}, r"'not' at #/\$defs/x"),
]


@pytest.mark.parametrize(("schema", "told"), REFUSED, ids=[told for _, told in REFUSED])
def test_what_is_not_held_to_is_refused(schema: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        check_schema(schema)
    with pytest.raises(ConfigError, match=told):
        check_schema(json.dumps(schema))


HELD: list[tuple[Any, list[Any], list[Any]]] = [
    ({"type": "string", "minLength": 2, "maxLength": 3}, ["aa", "aaa"], ["a", "aaaa"]),
    ({"type": "string", "pattern": "^(a|b)$", "title": "t", "examples": [1]}, ["a"], ["c"]),
    ({"type": "string", "format": "date"}, ["2020-01-02"], ["x"]),
    ({"type": "integer", "minimum": 3, "exclusiveMaximum": 12}, [3, 11], [2, 12]),
    ({"type": "integer", "multipleOf": 3}, [9], [10]),
    ({"type": "number", "minimum": 3, "maximum": 12}, [3, 3.5], [2.9, 13]),
    ({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2}, [[1]], [[], [1, 2, 3]]),
    ({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, [[1, "a"]], [[1, 2]]),
    ({"type": "object", "propertyNames": {"maxLength": 2, "type": "string"}}, [{"aa": 1}], [{"aaa": 1}]),
    ({"properties": {"a": {"type": "integer"}}, "required": ["a"]}, [{"a": 1}], [{}, {"a": "x"}]),
    ({"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1}, [{"a": 1}], [{}]),
    ({"type": ["string", "null"]}, ["a", None], [1]),
    ({"enum": [1, "a", None]}, [1, "a", None], [2]),
    ({"type": "string", "enum": ["a", "b"]}, ["a", "b"], ["c", 1]),
    ({"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}, ["a", None], [1]),
    ({"allOf": [{"$ref": "#/$defs/x"}], "description": "d", "$defs": {"x": {"type": "integer"}}}, [1], ["a"]),
    (UNION, [{"k": "a"}, {"k": "b", "x": 1}], [{"k": "c"}, {"k": "b"}]),
    ({"$defs": {"unused": {"not": {}}}, "type": "integer"}, [1], ["a"]),
]  # fmt: skip


def accepts(compiled: xgrammar.CompiledGrammar, value: Any) -> bool:
    matcher = xgrammar.GrammarMatcher(compiled)
    return matcher.accept_string(json.dumps(value)) and matcher.accept_token(END)


@pytest.mark.parametrize(("schema", "good", "bad"), HELD, ids=[json.dumps(held[0]) for held in HELD])
def test_what_is_taken_is_held_to(schema: Any, good: list[Any], bad: list[Any]) -> None:
    check_schema(schema)
    compiled = COMPILER.compile_json_schema(json.dumps(schema))
    assert can_end(str(compiled.grammar))
    assert [accepts(compiled, value) for value in good] == [True] * len(good)
    assert [accepts(compiled, value) for value in bad] == [False] * len(bad)


def test_schemas_may_refer_to_themselves_but_are_not_too_deep() -> None:
    tree = {
        "type": "object",
        "properties": {"left": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        "required": ["left"],
    }
    check_schema(tree)
    assert can_end(str(COMPILER.compile_json_schema(json.dumps(tree)).grammar))
    deep: dict[str, Any] = {"type": "integer"}
    for _ in range(200):
        deep = {"type": "array", "items": deep}
    with pytest.raises(ConfigError, match="nested more than 100"):
        check_schema(deep)
    definitions = {str(place): {"$ref": f"#/$defs/{place + 1}"} for place in range(200)}
    with pytest.raises(ConfigError, match="nested more than 100"):
        check_schema({"$ref": "#/$defs/0", "$defs": definitions | {"200": {"type": "integer"}}})
    with pytest.raises(ConfigError, match="not JSON"):
        check_schema("{")


def test_what_replaces_a_oneof_replaces_nothing_else() -> None:
    several = [{"type": "integer", "minimum": 0}, {"type": "integer", "maximum": 10}]
    assert supported_part({"oneOf": several}) == {"anyOf": several}
    assert supported_part({"oneOf": several, "anyOf": [{"type": "integer"}]}) == {
        "anyOf": [{"type": "integer"}]
    }


def test_marked_text_of_no_length_is_not_any_text() -> None:
    assert marked_string({"type": "string", "minLength": 0}) is None
    assert marked_string({"type": "string", "maxLength": 0}) == ""


def test_steps_of_a_reference_are_decoded_once() -> None:
    root = {"a~1b": 1, "a/b": 2, "a b": 3}
    assert [resolved(root, f"#/{step}") for step in ("a~01b", "a~1b", "a%20b", "c")] == [1, 2, 3, None]


@pytest.mark.parametrize(
    ("grammar", "is_able"),
    [
        ("root ::= root", False),
        ('root ::= "a" root', False),
        ('root ::= "a" dead\ndead ::= dead "b"', False),
        ('root ::= "a" dead | "b"\ndead ::= dead', True),
        ('root ::= "a" root | ""', True),
        ('root ::= dead? "b"\ndead ::= dead', True),
        ('root ::= dead* [(|)] "(" | ")"\ndead ::= dead', True),
        ('root ::= one{0,3} "x"\none ::= one', True),
        ('root ::= one{2,3} "x"\none ::= one', False),
        ('root ::= one{2,3} "root"\none ::= [^"]', True),
    ],
)
def test_grammars_that_no_text_can_end(grammar: str, is_able: bool) -> None:
    assert can_end(str(COMPILER.compile_grammar(grammar).grammar)) is is_able


@pytest.mark.parametrize(
    ("schema", "is_able"),
    [
        ({"$ref": "#"}, False),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, False),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}}, True),
        ({"anyOf": [{"$ref": "#"}, {"type": "integer"}]}, True),
    ],
)
def test_schemas_that_no_text_can_end(schema: Any, is_able: bool) -> None:
    assert can_end(str(COMPILER.compile_json_schema(json.dumps(schema)).grammar)) is is_able
