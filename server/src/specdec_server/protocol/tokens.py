"""Requests about tokens."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


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


class DetokenizeRequest(BaseModel):
    """The body of `POST /detokenize`."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    tokens: list[int]
