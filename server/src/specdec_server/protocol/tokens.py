"""Requests for tokenization and detokenization."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from specdec_server.protocol.checks import ListOf, check_size, check_value


class TokenizeRequest(BaseModel):
    """The body of `POST /tokenize`: a prompt, or the messages of a conversation."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    prompt: str | None = None
    messages: ListOf[dict[str, Any]] | None = None
    add_special_tokens: bool = True
    """Applies to prompts; a chat template writes its own special tokens."""
    add_generation_prompt: bool = True
    return_token_strs: bool = False

    _is_sound = field_validator("*", mode="before")(check_value)
    _is_small = model_validator(mode="before")(check_size)


class DetokenizeRequest(BaseModel):
    """The body of `POST /detokenize`."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    tokens: ListOf[int]

    _is_sound = field_validator("*", mode="before")(check_value)
    _is_small = model_validator(mode="before")(check_size)
