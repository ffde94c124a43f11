"""A request to OpenAI's Responses API, which stores conversations."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from annotated_types import MaxLen
from pydantic import BaseModel, ConfigDict, Field

from specdec import ConfigError, SamplingParams
from specdec.config import notice
from specdec_server.protocol.checks import MAX_MESSAGES, ListOf
from specdec_server.protocol.generation import GenerationRequest
from specdec_server.protocol.response_format import JsonSchema, ResponseFormat
from specdec_server.tools.choice import ToolChoice, tool_choice_of

_KEPT = frozenset({"metadata", "store"})
"""Fields that have no effect on completions but have one here."""
_NOT_INCLUDED = "message.output_text.logprobs"


class TextFormat(BaseModel):
    """Format of the text."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    json_schema: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class TextOptions(BaseModel):
    """Options of the text."""

    model_config = ConfigDict(extra="forbid")

    format: TextFormat | None = None
    verbosity: str | None = None
    """Has no effect: it is not passed to the model."""


class ReasoningOptions(BaseModel):
    """Options of the reasoning."""

    model_config = ConfigDict(extra="forbid")

    effort: str | None = Field(None, max_length=32)
    summary: str | None = None
    """Has no effect: reasoning is returned unchanged."""
    generate_summary: str | None = None


class ResponsesRequest(GenerationRequest):
    """The body of `POST /v1/responses`."""

    input: str | Annotated[ListOf[dict[str, Any]], MaxLen(MAX_MESSAGES)]
    instructions: str | None = None
    """The system message; instructions of an earlier response are not carried over."""
    previous_response_id: str | None = Field(None, max_length=128)
    max_output_tokens: int | None = None
    tools: ListOf[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    include: ListOf[str] | None = None
    max_tool_calls: int | None = None
    """Has no effect: the client calls the tools."""
    truncation: Literal["disabled"] | None = None
    background: Literal[False] | None = None
    n: Literal[1] | None = None
    prompt_logprobs: None = None
    return_token_ids: None = None
    return_tokens_as_token_ids: None = None
    return_draft_steps: None = None

    @property
    def choice(self) -> ToolChoice:
        """The tools that the model may call.

        Raises:
            ConfigError: naming what is wrong with them.
        """
        return tool_choice_of(self.tools, self.tool_choice, self.parallel_tool_calls)

    def to_sampling_params(self) -> SamplingParams:
        """Return the sampling parameters.

        Raises:
            ConfigError: naming the one that is wrong.
        """
        if _NOT_INCLUDED in (self.include or ()):
            raise ConfigError(
                f"include: {_NOT_INCLUDED!r} is not supported: ask /v1/chat/completions for log probabilities"
            )
        self._notice_more()
        form = None if self.text is None or self.text.format is None else self.text.format
        asked = self
        if form is not None:
            if self.response_format is not None:
                raise ConfigError(
                    "response_format and text.format are two ways to ask for one thing: give one"
                )
            asked = self.model_copy(update={"response_format": _response_format(form)})
        return asked.sampling_params(
            max_tokens=self.max_output_tokens, logprobs=None, prompt_logprobs=None, max_logprobs=0
        )

    def notice_harmless(self, besides: frozenset[str] = frozenset()) -> None:
        """Log once per process for each field that it has no effect."""
        super().notice_harmless(besides | _KEPT)

    def _notice_more(self) -> None:
        given = {
            "include": (self.include, "nothing is included but what is in every response"),
            "max_tool_calls": (self.max_tool_calls, "tools are called by the client"),
            "text.verbosity": (self.text and self.text.verbosity, "the model is not told"),
            "reasoning.summary": (self.reasoning and self.reasoning.summary, "reasoning is given as it is"),
        }
        for name, (value, why) in given.items():
            if value:
                notice(f"responses:{name}", f"the field {name!r} of a request has no effect: {why}")


def _response_format(form: TextFormat) -> ResponseFormat | None:
    if form.type == "text":
        return None
    if form.type == "json_object":
        return ResponseFormat(type="json_object")
    if form.json_schema is None:
        raise ConfigError("text.format: type 'json_schema' needs a schema")
    return ResponseFormat(type="json_schema", json_schema=JsonSchema(schema=form.json_schema, name=form.name))
