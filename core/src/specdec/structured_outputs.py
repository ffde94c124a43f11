"""Constraints on the generated text of a request."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from specdec.config_model import ConfigModel
from specdec.text.unicode import check_unicode


class StructuredOutputsParams(ConfigModel):
    """One constraint on the generated text. Names are vLLM's.

    Raises:
        ConfigError: naming what is wrong.
    """

    model_config = ConfigDict(populate_by_name=True)
    _error_prefix = "StructuredOutputsParams"

    json_schema: str | dict[str, Any] | None = Field(
        default=None,
        alias="json",
        description="A JSON schema, as text or mapping; or a pydantic model's class.",
    )
    regex: str | None = Field(
        default=None, min_length=1, description="A regular expression for the whole text."
    )
    choice: list[str] | None = Field(default=None, min_length=1, description="The texts to choose from.")
    grammar: str | None = Field(
        default=None,
        min_length=1,
        description="A grammar in EBNF (GBNF form), which starts at `root`, or in Lark's, which starts at `start`.",
    )
    json_object: bool | None = Field(default=None, description="True: any JSON object.")
    structural_tag: str | dict[str, Any] | None = Field(
        default=None,
        description="Free text with parts that must have a form: a structural tag in xgrammar's format, as text or mapping.",
    )
    disable_any_whitespace: bool = Field(
        default=False,
        description="With json and json_object: one blank after a comma or colon, and no others.",
    )

    def __init__(self, **kwargs: Any) -> None:
        schema = kwargs.get("json")
        if isinstance(schema, type) and issubclass(schema, BaseModel):
            kwargs["json"] = schema.model_json_schema()
        for name, value in kwargs.items():
            for text in value if isinstance(value, list) else [value]:
                if isinstance(text, str):
                    check_unicode(text, f"StructuredOutputsParams: {name}")
        super().__init__(**kwargs)

    @model_validator(mode="after")
    def _is_exactly_one(self) -> StructuredOutputsParams:
        if len(self._given) != 1:
            names = ", ".join(self._given) or "none"
            raise ValueError(
                f"give exactly one of json, regex, choice, grammar, json_object, structural_tag (got {names})"
            )
        if self.disable_any_whitespace and self.kind not in ("json", "json_object"):
            raise ValueError(
                f"disable_any_whitespace is about the blanks of JSON and does nothing with {self.kind}: leave it out"
            )
        return self

    @property
    def _given(self) -> list[str]:
        kinds = {
            "json": self.json_schema, "regex": self.regex, "choice": self.choice, "grammar": self.grammar,
            "json_object": self.json_object or None, "structural_tag": self.structural_tag,
        }  # fmt: skip
        return [name for name, value in kinds.items() if value is not None]

    @property
    def kind(self) -> str:
        """Name of the given constraint."""
        return self._given[0]
