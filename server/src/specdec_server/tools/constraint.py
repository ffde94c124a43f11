"""Grammar of a message with tool calls and reasoning."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

from specdec import ConfigError, StructuredOutputsParams
from specdec.config import notice
from specdec_runtime.structured_outputs import check_schema, supported_part
from specdec_server.tools.choice import ToolChoice
from specdec_server.tools.syntax import CallSyntax
from specdec_server.tools.tool import Tool

_OBJECT = {"type": "object"}


def constrained(
    wanted: StructuredOutputsParams | None,
    choice: ToolChoice,
    syntax: CallSyntax | None,
    reasoning: dict[str, Any] | None,
) -> StructuredOutputsParams | None:
    """Return the constraint on a message; None if it is unconstrained.

    Args:
        wanted: constraint on the content.
        choice: the tools that the model may call.
        syntax: call syntax of the model.
        reasoning: format of the preceding reasoning, which is not constrained.

    Raises:
        ConfigError: for `strict` tools in a format whose calls have no distinguishing start marker.
    """
    tools: tuple[Tool, ...] = ()
    if syntax is not None and (choice.is_forced or wanted or any(tool.is_strict for tool in choice.allowed)):
        tools = tuple(map(_enforced, choice.allowed))
    answer, is_new = None if wanted is None else _format_of(wanted), False
    if choice.is_forced:
        assert syntax is not None
        answer, is_new = syntax.forced(tools, is_parallel=choice.is_parallel), True
    elif choice.mode == "auto":
        if answer is not None and syntax is not None:
            calls = syntax.forced(tools, is_parallel=choice.is_parallel)
            answer, is_new = {"type": "or", "elements": [answer, calls]}, True
        elif any(tool.is_strict for tool in choice.allowed):
            answer, is_new = None if syntax is None else syntax.free(tools), True
            if answer is None:
                raise ConfigError(
                    "tools: 'strict' cannot be kept to while the model may answer with text as well, since its calls begin "
                    "without a mark: set tool_choice to 'required' or to a function, or leave 'strict' out"
                )
    if answer is not None and reasoning is not None:
        answer, is_new = {"type": "sequence", "elements": [reasoning, answer]}, True
    return (
        StructuredOutputsParams(structural_tag={"type": "structural_tag", "format": answer})
        if is_new
        else wanted
    )


def _enforced(tool: Tool) -> Tool:
    """Return a tool with what a grammar can enforce of its schema.

    Raises:
        ConfigError: if that is not all and the tool is strict.
    """
    try:
        check_schema(tool.parameters)
    except ConfigError as error:
        if tool.is_strict:
            raise ConfigError(f"tools: {tool.name!r} is strict: {error}") from None
        notice(
            "tools:schema",
            "the schema of a tool without 'strict' says more than a grammar can hold to: its arguments may go beyond it",
        )
        return replace(tool, parameters=supported_part(tool.parameters))
    return tool


def _format_of(wanted: StructuredOutputsParams) -> dict[str, Any]:
    """Return a constraint as a structural-tag format."""
    schema: Any = _OBJECT if wanted.json_object else wanted.json_schema
    if schema is not None:
        check_schema(schema)
        schema = json.loads(schema) if isinstance(schema, str) else schema
        return {
            "type": "json_schema",
            "json_schema": schema,
            **({"max_whitespace_cnt": 1} if wanted.disable_any_whitespace else {}),
        }
    if wanted.regex is not None:
        return {"type": "regex", "pattern": wanted.regex}
    if wanted.choice is not None:
        return {"type": "or", "elements": [{"type": "const_string", "value": text} for text in wanted.choice]}
    if wanted.grammar is not None:
        return {"type": "grammar", "grammar": wanted.grammar}
    return _format_in(wanted.structural_tag)


def _format_in(tag: object) -> dict[str, Any]:
    """Return the format in a structural tag.

    Raises:
        ConfigError: if it has none.
    """
    with suppress(ValueError, RecursionError):
        found = json.loads(tag) if isinstance(tag, str) else tag
        if isinstance(found, dict) and isinstance(found.get("format"), dict):
            inner: dict[str, Any] = found["format"]
            return inner
    raise ConfigError("structured_outputs: the structural tag is not a JSON object with a 'format'")
