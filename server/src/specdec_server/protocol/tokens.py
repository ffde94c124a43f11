"""Requests for tokenization and detokenization."""

from __future__ import annotations

from typing import Annotated, Any

from annotated_types import MaxLen
from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from specdec_server.protocol.checks import MAX_MESSAGES, ListOf, check_fields, check_value

MAX_CHARACTERS = 2**20
MAX_TOKENS = 2**17
"""Maximum length of what is tokenized or detokenized at once: building the result holds the interpreter's lock."""


class TokenizeRequest(BaseModel):
    """The body of `POST /tokenize`: a prompt, or the messages of a conversation."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    prompt: Annotated[str, MaxLen(MAX_CHARACTERS)] | None = None
    messages: Annotated[ListOf[dict[str, Any]], MaxLen(MAX_MESSAGES)] | None = None
    add_special_tokens: bool | None = None
    """Default: yes. Applies to prompts; a chat template writes its own special tokens."""
    add_generation_prompt: bool | None = None
    """Default: yes."""
    return_token_strs: bool | None = None

    _is_sound = field_validator("*", mode="before")(check_value)
    _has_known_fields = model_validator(mode="before")(check_fields)


class DetokenizeRequest(BaseModel):
    """The body of `POST /detokenize`."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    tokens: Annotated[ListOf[int], MaxLen(MAX_TOKENS)]

    _is_sound = field_validator("*", mode="before")(check_value)
    _has_known_fields = model_validator(mode="before")(check_fields)
