"""Keywords of JSON schema against the `jsonschema` package: never wider, and narrower only where this says so."""

from __future__ import annotations

import json
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker, SchemaError
from pydantic import BaseModel, Field
from speccheck.grammars import accepts, accepts_value, compiled, sampled

from specdec import ConfigError
from specdec_runtime.structured_outputs import check_schema, supported_part

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 5, 9, 10, 11, 12, 99, -5, 0.5, 1.5, -0.5, 2.9, 13, "", "a", "b", "ab", "abc", "abcd",
    "a\tb", '"', "\\", "C:\\x", "é", "😀", "1", "2020-01-02", "2023-02-30", "1.2.3.4", [], [1], [1, 2], [1, 2, 3], ["a"],
    ["a", "b"], [1, "a"], ["a", 1], [None], [[]], [{}], [1, "a", True], {}, {"a": 1}, {"a": "x"}, {"b": 1}, {"b": "x"},
    {"a": 1, "b": 2}, {"a": 1, "b": "x"}, {"c": 1}, {"ab": 1}, {"a": None}, {"a": []}, {"a": {"a": 1}}, {"a": 1, "c": True},
    {"k": "a"}, {"k": "b"}, {"x_a": 1}, {"x_a": "q"}, {"a": 1, "b": 2, "c": 3}, {'a"b': 1}, {"é": 1}, {"a\tb": 1},
]  # fmt: skip
INTEGER, TEXT, NULL = {"type": "integer"}, {"type": "string"}, {"type": "null"}


def array(**keys: Any) -> dict[str, Any]:
    return {"type": "array", **keys}


def closed(**keys: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, **keys}


EXACT: list[Any] = [
    {}, True, array(), array(minItems=1), array(maxItems=2), array(minItems=1, maxItems=2), array(items=False),
    array(items=INTEGER, minItems=2), array(prefixItems=[INTEGER]), array(prefixItems=[INTEGER], items=False),
    array(prefixItems=[INTEGER, TEXT], minItems=1), array(prefixItems=[INTEGER], maxItems=2),
    array(items=INTEGER, prefixItems=[NULL]),
    array(prefixItems=[INTEGER, TEXT], items=NULL, minItems=3), {"type": ["array", "null"], "maxItems": 1},
    TEXT, {"type": "string", "minLength": 1}, {"type": "string", "maxLength": 2},
    {"type": "string", "minLength": 2, "maxLength": 3},
    {"type": "string", "pattern": "b"}, {"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "^[^a]*$"},
    {"type": "string", "pattern": r"^C:\\[a-z]$"}, {"type": "string", "pattern": r"^a\tb$"}, {"type": "string", "pattern": '"'},
    {"type": "string", "format": "date"}, {"type": "string", "format": "ipv4"}, {"type": ["string", "null"], "maxLength": 1},
    INTEGER, {"type": "integer", "minimum": 3}, {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 11},
    {"type": "integer", "multipleOf": 3}, {"type": "integer", "multipleOf": 3, "minimum": 1, "maximum": 12}, {"type": "number"},
    {"type": "number", "minimum": 0}, {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    {"type": "number", "minimum": -0.5, "maximum": 3}, {"type": "object"}, closed(), closed(properties={"a": {}, "b": TEXT}),
    closed(properties={"a": {}, "b": {}}, minProperties=1), closed(properties={"a": {}, "b": {}}, maxProperties=1),
    closed(properties={"a": INTEGER, "b": TEXT}, required=["b"]), closed(patternProperties={"a": INTEGER}),
    closed(patternProperties={"^x_": INTEGER}), closed(patternProperties={r"\t|\"": INTEGER}), closed(properties={'a"b': {},
    "é": {}}),
    {"type": "object", "minProperties": 2}, {"type": "object", "maxProperties": 1},
    {"type": "object", "additionalProperties": INTEGER},
    {"type": "object", "properties": {"a": INTEGER}, "additionalProperties": TEXT},
    {"type": "object", "properties": {"a": INTEGER}}, {"type": "object", "properties": {"a": {"$ref": "#"}}},
    {"type": "object", "patternProperties": {"a": INTEGER}}, {"properties": {"a": INTEGER}, "required": ["a"]},
    {"items": INTEGER}, {"additionalProperties": INTEGER}, {"minimum": 3}, {"minLength": 2},
    {"type": "object", "patternProperties": {"a": {}}, "additionalProperties": TEXT}, {"patternProperties": {"a": {}}},
    closed(patternProperties={"a": INTEGER}, properties={"ab": TEXT}), closed(patternProperties={"^a": INTEGER, "^b": TEXT}),
    {"type": "object", "required": ["a"]}, {"$ref": "#/$defs/x", "minimum": 5, "$defs": {"x": INTEGER}},
    {"allOf": [TEXT, {"minLength": 2}]}, {"type": ["string", "integer"], "anyOf": [TEXT, {"minimum": 3}]},
    {"type": "string", "enum": ["a", 1]}, {"type": "string", "pattern": "^a+", "minLength": 2},
    {"enum": [1, "ab"], "minLength": 2},
    {"type": "integer", "multipleOf": 3, "minimum": 1}, {"type": "integer", "multipleOf": 2.5},
    {"type": "integer", "minimum": 2.5},
    {"type": "number", "multipleOf": 0.5}, {"$ref": "#/$defs/a~1b", "$defs": {"a/b": INTEGER}},
    {"$ref": "#/$defs//x", "$defs": {"": {"x": TEXT}, "x": INTEGER}}, {"$ref": "#/$defs/a%20b", "$defs": {"a b": INTEGER}},
    {"oneOf": [{"type": "object", "properties": {"k": {"const": name}}, "required": ["k"]} for name in "ab"]},
    {"allOf": [{"type": "object", "properties": {"a": INTEGER}}, {"required": ["a"], "properties": {"b": INTEGER}}]},
    {"type": "object", "propertyNames": {"enum": ["a", "c"]}, "additionalProperties": INTEGER},
    {"type": "object", "propertyNames": {"type": "string", "pattern": "^a+$"}},
    {"type": "object", "propertyNames": {"enum": ["a", "b"]}},
    {"enum": [1, "a", None]}, {"const": "é"},
    {"enum": [0.5, 12]}, {"const": '"'}, {"const": True}, {"anyOf": [INTEGER, TEXT]}, {"oneOf": [INTEGER, TEXT]},
    {"allOf": [TEXT]},
    {"anyOf": [{"type": "integer", "minimum": 3}, {"type": "integer", "maximum": 0}]}, {"type": "boolean"}, NULL,
    {"$ref": "#/$defs/x", "$defs": {"x": INTEGER}}, {"definitions": {"x": TEXT}, "$ref": "#/definitions/x"},
]  # fmt: skip
"""Enforced as they are."""
NARROWER: list[Any] = [
    {"type": "number", "minimum": -0.5, "maximum": 2.95}, {"type": "number", "maximum": 0.05},
]  # fmt: skip
"""A number of which a bound begins with is refused: 2.9 below 2.95."""
SAMPLED: list[Any] = [
    *({"type": "string", "format": name} for name in ("date-time", "email", "uuid", "uri", "ipv6", "hostname", "duration")),
    {"type": "string", "format": "time"},
    *({"type": "number", key: bound} for key in ("minimum", "exclusiveMaximum") for bound in (0, -1, 2.5, 0.1, 1e15)),
    *({"type": "number", "minimum": low, "maximum": high} for low, high in ((-1.25, 3.75), (0.1, 0.3), (-100, -0.001), (0, 0))),
    *({"type": "integer", key: bound} for key in ("minimum", "exclusiveMaximum") for bound in (0, -25, 10**15, 1 - 2**53)),
    {"type": "object", "properties": {"a": INTEGER, "ab": NULL, 'a"\\': NULL, "é": NULL}, "additionalProperties": TEXT},
    {"type": "integer", "multipleOf": 7}, {"type": "string", "format": "date", "pattern": "-0[12]-"},
]  # fmt: skip
REFUSED: list[tuple[Any, str]] = [
    *((keys, f'Unimplemented keys: .*"{name.replace("$", "[$]")}"') for name, keys in {
        "not": {"not": TEXT}, "if": {"if": INTEGER, "then": {"minimum": 3}}, "uniqueItems": array(uniqueItems=True),
        "contains": array(contains=INTEGER), "dependentRequired": {"dependentRequired": {"a": ["b"]}},
        "dependencies": {"dependencies": {"a": ["b"]}}, "$dynamicRef": {"$dynamicRef": "#x"},
        "unevaluatedItems": array(unevaluatedItems=False), "unevaluatedProperties": {"unevaluatedProperties": False},
        "propertyNames": {"type": "object", "propertyNames": {"maxLength": 1}},
        "dependentSchemas": {"properties": {"a": {"dependentSchemas": {"a": {"required": ["b"]}}}}},
    }.items()),
    ({"$ref": "#/$defs/x", "$defs": {"x": {"not": {}}}}, "not"),
    ({"type": "integer", "maximum": 2**64}, "above 2[*][*]53"), ({"const": [2**64]}, "above 2[*][*]53"),
    ({"type": "number", "minimum": 3, "maximum": 1}, "minimum"),
    ({"type": "number", "minimum": 1e-7, "maximum": 2e-7}, "'minimum'"),
    ({"type": "number", "exclusiveMinimum": 0, "maximum": 0}, "exclusiveMinimum"),
    ({"type": "number", "maximum": 1e300}, "'maximum'"),
    ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1e-6}, "'exclusiveMaximum'"), ({"anyOf": []}, "anyOf"),
    ({"type": "object", "patternProperties": {"a": INTEGER, "b": TEXT}}, "not disjoint"),
    ({"type": "object", "patternProperties": {"(?=a)": INTEGER}}, "look-ahead"),
    ({"type": "string", "pattern": "^(?!a)"}, "look-ahead"), ({"type": "string", "pattern": 3}, "pattern"),
    ({"type": "string", "pattern": "a", "format": "date"}, "empty"), ({"type": "string", "format": "regex"}, "format: regex"),
    ({"type": "string", "minLength": -1}, "minLength"), ({"type": "string", "minLength": 3, "maxLength": 2}, "minLength"),
    (array(minItems=1.5), "minItems"), ({"type": "wrong"}, "type: wrong"), ({"$ref": "#/$defs/x"}, "/[$]defs/x"),
    ({"oneOf": [{"const": 1}, {"const": 1.0}]}, "oneOf"), ({"oneOf": [INTEGER, {"type": "number"}]}, "oneOf"),
    ({"oneOf": [{"type": "integer", "minimum": 0}, {"type": "integer", "maximum": 10}]}, "oneOf"),

       *(({"$ref": name}, "does not|not present") for name in ("http://example.org/x.json", "x.json#/a", "#anchor", "file:///etc/passwd")),
    ({"type": "object", "properties": {"a": {}, "b": {}}, "maxProperties": 1}, "maxProperties"),
    (closed(properties={"a": {"$id": "http://x/y", "$ref": "#/$defs/x"}}, **{"$defs": {"x": TEXT}}), "/[$]defs/x"),
]  # fmt: skip


def texts_of(schema: Any, grammar: Any) -> None:
    """Texts drawn from the grammar are JSON that the schema allows."""
    validator = Draft202012Validator(
        schema, format_checker=FormatChecker(["date", "ipv4", "ipv6", "email", "uuid"])
    )
    texts = sampled(grammar, 5, 25)
    assert texts or schema in ({}, True)
    for text in texts:
        try:
            value = json.loads(text, object_pairs_hook=_without_doubles)
        except KeyError:  # a name that no keyword lists may come twice: the last counts
            continue
        validator.validate(value)


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise KeyError
    return made


@pytest.mark.parametrize("schema", EXACT, ids=json.dumps)
@pytest.mark.sampled(20, slow=30)
def test_as_wide_as_asked(schema: Any) -> None:
    grammar, validator = (
        compiled({"json": json.dumps(schema)}),
        Draft202012Validator(schema, format_checker=FormatChecker()),
    )
    for value in VALUES:
        assert accepts_value(grammar, value) == validator.is_valid(value), value
    texts_of(schema, grammar)


@pytest.mark.parametrize("schema", NARROWER, ids=json.dumps)
def test_narrower_where_documented(schema: Any) -> None:
    grammar, validator = compiled({"json": schema}), Draft202012Validator(schema)
    assert {
        json.dumps(value)
        for value in VALUES
        if accepts_value(grammar, value) and not validator.is_valid(value)
    } == set()
    texts_of(schema, grammar)


@pytest.mark.parametrize("schema", SAMPLED, ids=json.dumps)
@pytest.mark.sampled(8, slow=12)
def test_texts_drawn_from_it(schema: Any) -> None:
    texts_of(schema, compiled({"json": schema}))


@pytest.mark.parametrize(("schema", "told"), REFUSED, ids=[json.dumps(schema) for schema, _ in REFUSED])
@pytest.mark.sampled(10, slow=10)
def test_refused_by_name(schema: Any, told: str) -> None:
    for given in (schema, json.dumps(schema)):
        with pytest.raises(ConfigError, match=f"SamplingParams: structured_outputs 'json'.*({told})"):
            compiled({"json": given})
    with pytest.raises(ConfigError, match=f"structured_outputs 'json'.*({told})"):
        check_schema(schema)
    tag = {
        "type": "structural_tag",
        "format": {"type": "sequence", "elements": [{"type": "json_schema", "json_schema": schema}]},
    }
    with pytest.raises(ConfigError, match=told):
        compiled({"structural_tag": json.dumps(tag)})


def test_pydantics_decimal_is_not_anything() -> None:
    """Its schema has had a look-ahead since pydantic 2.12."""
    look_ahead = {"type": "string", "pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"}

    class Bill(BaseModel):
        total: Decimal = Field(json_schema_extra={"anyOf": [{"type": "number"}, look_ahead]})

    with pytest.raises(ConfigError, match="look-ahead"):
        compiled({"json": Bill})


@pytest.mark.parametrize(
    "text", [r'{"\u0061": "x"}', r'{"\u0062": "x"}', r'{"a\ud1d6": "x"}', '{"a": 1, "a": "x"}', '{"a": "x"}']
)
def test_a_name_has_one_spelling(text: str) -> None:
    for keys in ({"properties": {"a": INTEGER, "b": INTEGER}}, {"patternProperties": {"^[ab]": INTEGER}}):
        assert not accepts(compiled({"json": {"type": "object", **keys}}), text)


def test_lists_of_items_as_in_older_drafts() -> None:
    grammar = compiled({"json": array(items=[INTEGER])})
    assert [accepts(grammar, text) for text in ("[]", "[1]", '[1, "a"]', '["a"]')] == [
        True,
        True,
        True,
        False,
    ]


def test_words_in_values_are_no_keywords() -> None:
    value = {"pattern": '[^"]', "minimum": 1e-5, "properties": {"pattern": "[^a]"}}
    grammar = compiled({"json": {"const": value}})
    assert accepts(grammar, json.dumps(value).replace("1e-05", "0.00001"))


def test_what_is_no_json() -> None:
    for schema in ('{"const": NaN}', {"const": float("inf")}, {"const": "\ud800"}, {"const": {1, 2}}):
        with pytest.raises(ConfigError, match="it is not JSON"):
            compiled({"json": schema})


def test_the_supported_part_is_enforced_and_the_rest_is_not(caplog: pytest.LogCaptureFixture) -> None:
    schema = closed(
        properties={"a": {**INTEGER, "not": {"const": 1}}, "b": {"oneOf": [INTEGER, {"type": "number"}]}}
    )
    part = supported_part(schema)
    grammar = compiled({"json": part})
    assert [accepts_value(grammar, {"a": value}) for value in (1, 2, "x")] == [True, True, False]
    assert "not enforced in full" in caplog.text
    assert "not" in caplog.text
    whole = closed(properties={"a": INTEGER})
    assert supported_part(whole) == whole
    for wrong in (
        {"type": "string", "pattern": "(?=a)"},
        {"$ref": "http://x/y"},
        {"type": "wrong"},
        {"type": 5},
    ):
        assert supported_part(wrong) == {"type": "object"}


KEYWORDS = [
    "type", "enum", "const", "properties", "required", "additionalProperties", "patternProperties", "propertyNames", "items",
    "prefixItems", "unevaluatedItems", "unevaluatedProperties", "$ref", "anyOf", "oneOf", "allOf", "minLength", "maxLength",
    "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems",
    "minProperties", "maxProperties", "$id", "$defs", "uniqueItems", "not",
]  # fmt: skip


def compiled_or_refused(schema: Any) -> Any:
    try:
        return compiled({"json": schema})
    except ConfigError as error:
        return str(error)


@pytest.mark.parametrize("turn", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("keyword", KEYWORDS)
@pytest.mark.sampled(8, slow=12)
def test_values_of_any_type(keyword: str, turn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A keyword with a value that makes no sense is refused or ignored; with one that does, nothing else is allowed.

    Every value comes with every second type, the other ones are slow.
    """
    monkeypatch.setattr(
        "specdec_runtime.structured_outputs.compiler.warnings_of", lambda grammar: ()
    )  # without a process for each
    for place, value in enumerate(
        (
            None,
            True,
            False,
            5,
            -1,
            1.5,
            "x",
            "",
            [],
            [1],
            [[]],
            [{}],
            {},
            {"a": 1},
            {"a": []},
            {"a": {}},
            1e300,
        )
    ):
        for kind in ("string", "object", "array", "integer", "number", None)[(place + turn) % 2 :: 2]:
            schema = ({} if kind is None else {"type": kind}) | {keyword: value}
            found = compiled_or_refused(schema)
            if isinstance(found, str):
                assert "structured_outputs 'json'" in found
                continue
            with suppress(SchemaError):
                Draft202012Validator.check_schema(schema)
                validator = Draft202012Validator(schema)
                wider = [v for v in VALUES if accepts_value(found, v) and not validator.is_valid(v)]
                assert wider == [], schema
