"""Requests about tokens."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator

from specdec_server.protocol.unicode import check_unicode


class TokenizeRequest(BaseModel):
    """The body of `POST /tokenize`: a prompt, or the messages of a conversation."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    add_special_tokens: bool = True
    """Of prompts; a chat template writes its own."""
    add_generation_prompt: bool = True
    return_token_strs: bool = False

    _is_text = field_validator("*", mode="before")(check_unicode)


class DetokenizeRequest(BaseModel):
    """The body of `POST /detokenize`."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    tokens: list[int]
