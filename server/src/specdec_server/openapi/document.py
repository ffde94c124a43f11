"""Parts of the OpenAPI document that FastAPI does not derive from the routes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

_REFERENCE = "#/components/schemas/{model}"


class Group(StrEnum):
    """A group of operations, in the order in which they are shown."""

    GENERATION = "Generation"
    STORED = "Stored responses"
    TOKENS = "Tokens"
    MODELS = "Models"
    MONITORING = "Monitoring"


_ABOUT = {
    Group.GENERATION: "Text, whole or as a stream of events. Fields are OpenAI's, and every sampling parameter of specdec.",
    Group.STORED: "Answers of `/v1/responses`, kept for `previous_response_id`.",
    Group.TOKENS: "Text to token ids and back, by the model's own tokenizer and chat template.",
    Group.MODELS: "What is served, and what drafts.",
    Group.MONITORING: "For probes and Prometheus; these need no key.",
}
GROUPS = [{"name": group, "description": _ABOUT[group]} for group in Group]


def taking(kind: type[BaseModel], examples: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an operation that describes its request body, which FastAPI does not read itself.

    Args:
        kind: the body's type.
        examples: bodies by what they show.
    """
    content = {
        "schema": {"$ref": _REFERENCE.format(model=kind.__name__)},
        "examples": {name: {"summary": name, "value": value} for name, value in examples.items()},
    }
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def answering(
    about: str, example: Any, media_type: str = "application/json"
) -> dict[int | str, dict[str, Any]]:
    """Return the description of an operation's response with status 200.

    Args:
        about: what it is.
        example: a response.
        media_type: of the response.
    """
    return {200: {"description": about, "content": {media_type: {"example": example}}}}


def complete_document(app: FastAPI, *kinds: type[BaseModel]) -> None:
    """Complete the OpenAPI document of an app that has all its routes.

    The schemas of bodies are added, and the sentence about an operation becomes its title.

    Args:
        app: the application; its document is made now.
        *kinds: types of request bodies.
    """
    document = app.openapi()
    _, found = models_json_schema([(kind, "validation") for kind in kinds], ref_template=_REFERENCE)
    components = document.setdefault("components", {})
    components["schemas"] = {**components.get("schemas", {}), **found["$defs"]}
    for operations in document["paths"].values():
        for operation in operations.values():
            sentence, _, more = operation["description"].partition("\n\n")
            operation["summary"], operation["description"] = sentence, more
