"""Calls that a grammar forces, drawn at random and read by their own parser: the arguments keep to the schema."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from servercheck.parsing import parsed
from speccheck.grammars import accepts, compiled, sampled

from specdec import ConfigError
from specdec_server.tools import Tool, ToolParser
from specdec_server.tools.choice import ToolChoice
from specdec_server.tools.constraint import constrained
from specdec_server.tools.json_list import JsonListParser
from specdec_server.tools.registry import TOOL_PARSERS, parser_class
from specdec_server.tools.schema_types import resolved

FORMATS = [
    ("hermes", ""), ("llama3_json", ""), ("mistral", ""), ("mistral", "[ARGS]"), ("qwen3_coder", ""),
    ("deepseek_v3", "```json"),
    ("deepseek_v31", ""), ("kimi_k2", ""), ("gpt_oss", ""), ("list", ""),
]  # fmt: skip


def schema_of(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties][:1],
        "additionalProperties": False,
        "$defs": {"kind": {"enum": ["a", "b c"]}},
    }


SCHEMAS = [
    schema_of(a={"type": "string", "pattern": r'^[a-c"\\\t]{1,3}$'}, b={"type": "string", "maxLength": 3}),
    schema_of(
        a={"type": "string", "enum": ["x", " x", "\ny", ""]},
        b={"type": "array", "minItems": 1, "maxItems": 2},
    ),
    schema_of(
        a={"type": "integer", "minimum": 3}, b={"$ref": "#/$defs/kind"}, c={"type": ["string", "null"]}
    ),
    schema_of(
        a={"type": "string", "format": "date"}, b={"type": "boolean"}, c={"type": "number", "maximum": 1}
    ),
    schema_of(a={"type": "string", "minLength": 2, "maxLength": 2}, b={"type": "object"}, c={"const": 4}),
    {"type": "object", "properties": {}, "additionalProperties": False},
]


def parser_of(name: str) -> type[ToolParser]:
    return (
        JsonListParser
        if name == "list"
        else parser_class(TOOL_PARSERS, name, ToolParser, "--tool-call-parser")
    )


@pytest.mark.parametrize("schema", SCHEMAS, ids=[json.dumps(schema["properties"]) for schema in SCHEMAS])
@pytest.mark.parametrize(("name", "template"), FORMATS)
@pytest.mark.sampled(16, slow=20)
def test_arguments_keep_to_the_schema(name: str, template: str, schema: dict[str, Any]) -> None:
    parser, tool = parser_of(name), Tool("f", parameters=schema, is_strict=True)
    choice = ToolChoice((tool,), "required", (tool,), is_parallel=False)
    wanted = constrained(None, choice, parser.syntax(template), None)
    assert wanted is not None
    texts = sampled(compiled(wanted.model_dump(exclude_none=True)), 7, 12, length=80)
    assert len(texts) > 3
    for text in texts:
        (call,) = parsed(lambda _: parser([tool]), [text]).calls
        assert call.name == "f"
        Draft202012Validator(schema).validate(json.loads(call.arguments))


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder", "list"])
def test_what_cannot_be_kept_to_is_refused_if_strict(name: str) -> None:
    for inner, told in (
        ({"type": "string", "pattern": "(?=a)"}, "look-ahead"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        *([({"type": ["string", "integer"], "minimum": 3}, "'a'")] if name == "qwen3_coder" else []),
    ):
        for is_strict in (True, False):
            tool = Tool("f", parameters=schema_of(a=inner), is_strict=is_strict)
            choice = ToolChoice((tool,), "required", (tool,))
            syntax = parser_of(name).syntax("")
            if is_strict:
                with pytest.raises(ConfigError, match=f"'f' is strict: .*{told}"):
                    constrained(None, choice, syntax, None)
            else:
                wanted = constrained(None, choice, syntax, None)
                assert wanted is not None
                assert compiled(wanted.model_dump(exclude_none=True)) is not None


@pytest.mark.parametrize(
    ("inner", "form"),
    [
        ({"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]}, '{"b": "%s"}'),
        ({"type": "string"}, "%s"),
        ({"type": "string", "minLength": 3}, "%s"),
    ],
)
def test_values_end_where_the_parser_ends_them(inner: dict[str, Any], form: str) -> None:
    tool = Tool("f", parameters=schema_of(a=inner), is_strict=True)
    wanted = constrained(
        None, ToolChoice((tool,), "required", (tool,)), parser_of("qwen3_coder").syntax(""), None
    )
    assert wanted is not None
    grammar = compiled(wanted.model_dump(exclude_none=True))
    for value, is_allowed in (("/function>", True), ("x</parameter>\n</function>\n</tool_call>", False)):
        written = f"<parameter=a>\n{form % value}\n</parameter>\n"
        text = f"<tool_call>\n<function=f>\n{written}</function>\n</tool_call>"
        assert accepts(grammar, text) == is_allowed


def test_strict_needs_a_format_that_can_be_forced() -> None:
    tool = Tool("f", is_strict=True)
    with pytest.raises(ConfigError, match="'strict' cannot be kept to"):
        constrained(None, ToolChoice((tool,), "auto", (tool,)), None, None)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string", "pattern": "b"}, ["b", "abc\nd"], ["a", ""]),
        ({"type": "string", "pattern": "^a[bc]"}, ["ab", "acx"], ["xab", "a"]),
        ({"type": "string", "pattern": r"a\$"}, ["a$", "xa$y"], ["a"]),
        ({"type": "string", "pattern": r"^a\\$"}, ["a\\"], ["a", "a\\x"]),
        ({"type": "string", "maxLength": 0}, [""], ["a"]),
        ({"type": "string", "minLength": 0}, ["", "x</parameter"], ["x</parameter>"]),
        ({"type": "string", "format": "date-time"}, ["2024-01-31T10:20:30Z"], ["2024-02-30T10:20:30Z", "x"]),
    ],
)
def test_text_outside_of_json(schema: dict[str, Any], good: list[str], bad: list[str]) -> None:
    tool = Tool("f", parameters=schema_of(a=schema), is_strict=True)
    wanted = constrained(
        None, ToolChoice((tool,), "required", (tool,)), parser_of("qwen3_coder").syntax(""), None
    )
    assert wanted is not None
    grammar = compiled(wanted.model_dump(exclude_none=True))
    form = "<tool_call>\n<function=f>\n<parameter=a>\n{}\n</parameter>\n</function>\n</tool_call>"
    assert [text for text in (*good, *bad) if accepts(grammar, form.format(text))] == good


def test_steps_of_a_reference_are_decoded_once() -> None:
    root = {"a~1b": 1, "a/b": 2, "a b": 3}
    assert [resolved(root, f"#/{step}") for step in ("a~01b", "a~1b", "a%20b", "c")] == [1, 2, 3, None]


def test_arguments_are_those_that_are_named_unless_the_schema_says_more() -> None:
    named = {"type": "object", "properties": {"a": {"type": "integer"}}}
    for keys, is_allowed in (({}, False), ({"additionalProperties": True}, True)):
        tool = Tool("f", parameters=named | keys)
        wanted = constrained(
            None, ToolChoice((tool,), "required", (tool,)), parser_of("hermes").syntax(""), None
        )
        assert wanted is not None
        grammar = compiled(wanted.model_dump(exclude_none=True))
        call = '<tool_call>\n{"name": "f", "arguments": {"a": 1%s}}\n</tool_call>'
        assert accepts(grammar, call % "")
        assert accepts(grammar, call % ', "b": 2') == is_allowed
