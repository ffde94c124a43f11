"""The grammar of arguments in Qwen3-Coder's format: one tag for each, text without quotes, other values as JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from specdec import ConfigError
from specdec_runtime.structured_outputs import check_schema
from specdec_server.tools.schema_types import resolved, types_of
from specdec_server.tools.tool import Tool

PARAMETER = "<parameter="
END_PARAMETER = "</parameter>"
_ANY_TEXT: dict[str, Any] = {"type": "any_text", "excludes": [END_PARAMETER]}
_NAME = re.compile(r"[^\s<>](?:[^\n<>]*[^\s<>])?")
_ABOUT_STRINGS = {"enum", "const", "pattern", "format", "minLength", "maxLength"}
_AROUND_PROPERTIES = {
    "$ref",
    "anyOf",
    "oneOf",
    "allOf",
    "patternProperties",
    "minProperties",
    "maxProperties",
}
_MAX_STEPS = 16
_DAY = r"\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8]))"
_TIME = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)"
_FORMATS = {"date": f"^{_DAY}$", "time": f"^{_TIME}$", "date-time": f"^{_DAY}T{_TIME}$"}


def qwen_arguments(tool: Tool) -> dict[str, Any]:
    """Return the format of a tool's arguments.

    Raises:
        ConfigError: for a strict tool with a schema that the format cannot keep to.
    """
    schema = tool.parameters
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if (
        not isinstance(properties, dict)
        or not isinstance(required, list)
        or schema.keys() & _AROUND_PROPERTIES
    ):
        if tool.is_strict:
            raise ConfigError(
                f"tools: {tool.name!r} is strict: its parameters are not listed in 'properties' alone"
            )
        properties, required = {}, []
    if schema.get("additionalProperties", False) not in (False, True) and tool.is_strict:
        raise ConfigError(
            f"tools: {tool.name!r} is strict: 'additionalProperties' is not supported in this format: set it to false"
        )
    elements: list[dict[str, Any]] = []
    for name, inner in properties.items():
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"tools: {tool.name!r} has a parameter {name!r}, which this format cannot write"
            )
        tag = {
            "type": "tag",
            "begin": f"{PARAMETER}{name}>\n",
            "content": _value(inner, tool, name),
            "end": f"\n{END_PARAMETER}\n",
        }
        elements.append(tag if name in required else {"type": "optional", "content": tag})
    return {"type": "sequence", "elements": elements or [{"type": "const_string", "value": ""}]}


def _value(given: Any, tool: Tool, name: str) -> dict[str, Any]:
    """Return the format of one value."""
    root, schema = tool.parameters, given
    for _ in range(_MAX_STEPS):
        if isinstance(schema, Mapping) and "$ref" in schema:
            schema = resolved(root, schema["$ref"])
    try:
        types = types_of(schema, root)
        if types and "string" not in types:
            found = {**schema, **{key: root[key] for key in ("$defs", "definitions") if key in root}}
            check_schema(found)
            return {"type": "json_schema", "json_schema": found}
        if types == {"string"}:
            return _text(schema)
        if types <= {"string", "null"} and not _mentions(schema, _ABOUT_STRINGS):
            return _ANY_TEXT
        raise ConfigError("text that may also be of another type is not told from it in this format")
    except (ConfigError, ValueError) as error:
        if tool.is_strict:
            raise ConfigError(f"tools: {tool.name!r} is strict: parameter {name!r}: {error}") from None
        return _ANY_TEXT


def _text(schema: Mapping[str, Any]) -> dict[str, Any]:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if values is not None:
        if any(END_PARAMETER in value for value in values):
            raise ConfigError(f"{END_PARAMETER!r} in a value ends it in this format")
        return {"type": "or", "elements": [{"type": "const_string", "value": value} for value in values]}
    if schema.keys() & {"anyOf", "oneOf", "allOf"} and _mentions(schema, _ABOUT_STRINGS):
        raise ConfigError("alternatives of text are not supported in this format")
    regex = _regex_of(schema)
    return _ANY_TEXT if regex is None else {"type": "regex", "pattern": regex, "excludes": [END_PARAMETER]}


def _regex_of(schema: Mapping[str, Any]) -> str | None:
    """Return a regular expression for the text of a string outside of JSON; None if the schema takes any string.

    Raises:
        ConfigError: for a keyword that cannot be enforced there.
    """
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    pattern = schema.get("pattern", _FORMATS.get(schema.get("format", "")))
    if ("format" in schema) != (pattern is not None and "pattern" not in schema):
        raise ConfigError(
            f"'format' is supported as one of {', '.join(_FORMATS)} and without a 'pattern' in this format"
        )
    if pattern is not None and (least or most is not None):
        raise ConfigError(
            "a length beside 'pattern' or 'format' is not supported in this format: leave it out"
        )
    if pattern is None:
        return rf"(?s:.{{{least},{'' if most is None else most}}})" if least or most is not None else None
    check_schema({"type": "string", "pattern": pattern})
    starts, ends = pattern.startswith("^"), re.search(r"(?<!\\)(?:\\\\)*\$\Z", pattern) is not None
    inner = pattern[starts : len(pattern) - ends]
    return ("" if starts else "(?s:.*)") + f"(?:{inner})" + ("" if ends else "(?s:.*)")


def _mentions(schema: Any, keywords: set[str]) -> bool:
    if isinstance(schema, Mapping):
        return bool(schema.keys() & keywords) or any(_mentions(inner, keywords) for inner in schema.values())
    return isinstance(schema, list) and any(_mentions(inner, keywords) for inner in schema)
