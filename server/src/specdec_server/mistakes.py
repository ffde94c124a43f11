"""Error messages for invalid request bodies."""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel

from specdec_server.protocol import ChatRequest, CompletionRequest
from specdec_server.protocol.responses import ResponsesRequest
from specdec_server.protocol.tokens import DetokenizeRequest, TokenizeRequest

_MODELS: dict[str, type[BaseModel]] = {
    "/v1/completions": CompletionRequest,
    "/v1/chat/completions": ChatRequest,
    "/v1/responses": ResponsesRequest,
    "/tokenize": TokenizeRequest,
    "/detokenize": DetokenizeRequest,
}
_INSTEAD = {
    "max_completion_tokens": "use max_tokens",
    "guided_json": "use structured_outputs: {'json': ...}",
    "guided_regex": "use structured_outputs: {'regex': ...}",
    "guided_choice": "use structured_outputs: {'choice': ...}",
    "guided_grammar": "use structured_outputs: {'grammar': ...}",
    "use_beam_search": "there is no beam search",
    "functions": "use tools",
    "function_call": "use tool_choice",
    "chat_template": "the template is the server's, --chat-template sets it",
    "audio": "there is text only",
    "web_search_options": "there is no search here: give a tool of your own",
}
"""Fields that other servers accept, and what to use here instead."""


def explained(path: str, error: RequestValidationError) -> tuple[str, str | None]:
    """Return a message about the first error of a body, and the field that contains it."""
    first = error.errors()[0]
    # In addition to names and indices, the location contains the types of union members.
    inside = [part for part in first["loc"] if part != "body"]
    field = str(inside[0]) if inside else None
    if first["type"] == "json_invalid":
        return f"the body is not JSON: {_where(error)}{first.get('ctx', {}).get('error', first['msg'])}", None
    if field is None and first["type"] == "value_error":
        return first["msg"].removeprefix("Value error, "), None
    if field is None:
        return (
            "the body is not a JSON object: send one, with the header 'Content-Type: application/json'",
            None,
        )
    if first["type"] == "extra_forbidden" and len(inside) == 1:
        return _unknown(path, field), field
    if first["type"] == "missing" and len(inside) == 1:
        return f"{path} needs the field {field!r}", field
    same = [found for found in error.errors() if [p for p in found["loc"] if p != "body"][:1] == inside[:1]]
    wanted = dict.fromkeys(
        found["msg"].removeprefix("Value error, ").removeprefix("Input should be ") for found in same
    )
    place, given = _place_of(error, inside)
    return f"{place}: {_short(given)} is not what it should be: {' or '.join(wanted)}", field


def _unknown(path: str, field: str) -> str:
    if field in _INSTEAD:
        return f"{path} knows no field {field!r}: {_INSTEAD[field]}"
    fields = _MODELS[path].model_fields if path in _MODELS else {}
    nearest = get_close_matches(field, fields, n=1, cutoff=0.8)
    hint = (
        f"did you mean {nearest[0]!r}?" if nearest else "leave it out; /openapi.json has those that there are"
    )
    return f"{path} knows no field {field!r}: {hint}"


def _where(error: RequestValidationError) -> str:
    """Return the position at which a body stops being JSON, as a message prefix."""
    place = error.errors()[0]["loc"][-1]
    if not isinstance(error.body, str) or not isinstance(place, int):
        return ""
    before = error.body[:place]
    line, column = before.count("\n") + 1, place - before.rfind("\n")
    return f"at line {line}, column {column}: "


def _place_of(error: RequestValidationError, inside: list[Any]) -> tuple[str, Any]:
    """Return the path to the wrong value, without the types of union members, and the value."""
    name, value = "", error.body
    for part in inside:
        if isinstance(value, dict) and part in value:
            name, value = f"{name}.{part}" if name else str(part), value[part]
        elif isinstance(value, list) and isinstance(part, int) and 0 <= part < len(value):
            name, value = f"{name}[{part}]", value[part]
    return name or str(inside[0]), value


def _short(given: Any) -> str:
    text = json.dumps(given, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
