"""The required format of a response."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class JsonSchema(BaseModel):
    """A named JSON schema."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    name: str | None = None
    description: str | None = None
    json_schema: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None
    """Has no effect: schemas are always enforced."""


class ResponseFormat(BaseModel):
    """OpenAI's `response_format`."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="before")
    @classmethod
    def _names_the_type_with_a_schema(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("schema") is not None:
            raise ValueError(
                "only type 'json_schema' has a schema: {'type': 'json_schema', 'json_schema': {'name': ..., 'schema': ...}}"
            )
        return given

    @model_validator(mode="after")
    def _has_its_schema(self) -> ResponseFormat:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError("type 'json_schema' and field 'json_schema' go together")
        return self

    @property
    def structured_outputs(self) -> dict[str, Any] | None:
        """The constraint in the format of `SamplingParams`; None without one."""
        if self.json_schema is not None:
            return {"json": self.json_schema.json_schema}
        return {"json_object": True} if self.type == "json_object" else None
