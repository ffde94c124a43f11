"""JSON schemas for llguidance, which enforces them or says what it cannot; here is the little that it does otherwise."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from specdec import ConfigError
from specdec_runtime.structured_outputs.trial import warnings_of

_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_VALUES = ("enum", "const", "default", "examples", "required", "x-guidance")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_SET = re.compile(r"\\.|\[(\^?)((?:\\.|[^\]\\])+)\]", re.S)
_OPERATOR = re.compile(r"(\\.)|[\[&~]", re.S)
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\(?:x00|u0000|0)|\0")
_SMALLEST, _LARGEST = 1e-4, 2**53
_ESCAPES = {"json_allowed_escapes": 'nrbtf\\"'}
"""Without `\\u`, by which llguidance 1.9 lets other spellings of a property's name pass for other names."""
BOUNDED = {"whitespace_pattern": r"[ \t\r\n]{1,16}|\r?\n[ \t]{0,80}"}
"""Whitespace between the parts of JSON: 16 characters of any kind, or a new line and its indentation. Without a bound a
model that likes whitespace writes it until `max_tokens`."""


def lark_grammar(lark: str, others: Sequence[Mapping[str, str]] = ()) -> str:
    """Return a grammar in Lark's form, and those that it names, for llguidance. Any tokens may spell a text, not only the
    tokenizer's own choice."""
    first = {"name": "start", "lark_grammar": f'%llguidance {{"no_forcing": true}}\n{lark}'}
    return json.dumps({"grammars": [first, *others]})


def json_grammar(schema: str | Mapping[str, Any], **options: Any) -> str:
    """Return a JSON schema as a grammar for llguidance.

    Args:
        schema: as text or mapping.
        options: llguidance's `x-guidance`.

    Raises:
        ConfigError: naming what cannot be enforced.
    """
    return lark_grammar(f"start: %json {json.dumps(guided(schema, **options))}")


def guided(schema: str | Mapping[str, Any], **options: Any) -> Any:
    """Return a copy of a schema that llguidance enforces, with options for it.

    Raises:
        ConfigError: naming what cannot be enforced.
    """
    try:
        text = schema if isinstance(schema, str) else json.dumps(schema, allow_nan=False)
        found = json.loads(text, parse_int=_integer, parse_constant=_refuse_constant)
        json.dumps(found, ensure_ascii=False).encode()  # raises for half of a surrogate pair
        found = _rewritten(found)
    except (ValueError, TypeError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"SamplingParams: structured_outputs 'json' cannot be compiled: it is not JSON: {error}"
        ) from None
    if not isinstance(found, dict):
        found = {} if found is True else {"anyOf": [found]}
    return {**found, "x-guidance": {**found.get("x-guidance", {}), **_ESCAPES, **options}}


def check_schema(schema: str | Mapping[str, Any]) -> None:
    """Check that everything in a schema will be enforced.

    Raises:
        ConfigError: naming the keyword.
    """
    grammar = json_grammar(schema)
    try:
        warnings_of(grammar)
    except ConfigError as error:
        raise ConfigError(f"SamplingParams: structured_outputs 'json' {error}") from None


def supported_part(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema of which llguidance leaves out what it does not enforce; it may allow more than before."""
    for candidate in (dict(schema), {**schema, "x-guidance": {"lenient": True}}):
        try:
            check_schema(candidate)
        except ConfigError:
            continue
        return candidate
    return {"type": "object"}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _integer(text: str) -> int:
    number = int(text)
    if abs(number) > _LARGEST:
        raise ConfigError(
            f"SamplingParams: structured_outputs 'json' has the integer {text:.30}, above 2**53: write it as a string"
        )
    return number


def _rewritten(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return [_rewritten(inner) for inner in schema] if isinstance(schema, list) else schema
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, dict):
            value = {
                (_pattern(name) if key == "patternProperties" else name): _rewritten(inner)
                for name, inner in value.items()
            }
        elif key == "pattern" and isinstance(value, str):
            value = _pattern(value)
        elif key in _BOUNDS:
            _check_bound(key, value)
        elif key not in _VALUES:
            value = _rewritten(value)
        made[key] = value
    return _with_names_as_patterns(made)


def _with_names_as_patterns(schema: dict[str, Any]) -> dict[str, Any]:
    """Return an object's schema with `patternProperties` for `propertyNames`, which llguidance does not have."""
    names = schema.get("propertyNames")
    if not isinstance(names, dict) or {"properties", "patternProperties", "required"} & schema.keys():
        return schema
    listed, pattern = names.get("enum"), names.get("pattern")
    if isinstance(listed, list) and all(isinstance(name, str) for name in listed):
        pattern = f"^({'|'.join(map(re.escape, listed))})$"
    if pattern is None or names.keys() - {"type", "title", "enum" if listed else "pattern"}:
        return schema
    others = {key: value for key, value in schema.items() if key != "propertyNames"}
    return {
        **others,
        "patternProperties": {pattern: schema.get("additionalProperties", True)},
        "additionalProperties": False,
    }


def portable(pattern: str, left_out: str = "") -> str:
    """Return a regular expression whose sets mean in Rust what they mean elsewhere: there `[`, `&&` and `~~` are operators.

    Args:
        pattern: as given.
        left_out: what sets that begin with `^` exclude beside.
    """

    def written(found: re.Match[str]) -> str:
        if found[2] is None:
            return found[0]
        inner = _OPERATOR.sub(lambda part: part[1] or f"\\{part[0]}", found[2])
        return f"[{found[1] and '^' + left_out}{inner}]"

    return _SET.sub(written, pattern)


def _pattern(pattern: str) -> str:
    """Return a pattern without U+0000: to a set with all characters below U+0020 llguidance 1.9 adds `"` and the backslash."""
    if _NUL.search(pattern):
        raise ConfigError(
            f"SamplingParams: structured_outputs 'json': pattern {pattern!r:.200} has U+0000: begin with U+0001"
        )
    return portable(pattern, r"\x00")


def _check_bound(key: str, value: object) -> None:
    if isinstance(value, int | float) and value and not _SMALLEST <= abs(value) <= _LARGEST:
        raise ConfigError(
            f"SamplingParams: structured_outputs 'json': {key!r} = {value!r} is not between {_SMALLEST:g} and 2**53: "
            "leave it out"
        )
