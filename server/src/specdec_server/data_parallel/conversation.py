"""Maps a request to its conversation, so it reaches the engine with its prefix in the prefix cache."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from specdec_server.errors import ApiError
from specdec_server.json_text import parsed

_RESPONSE = re.compile(r"resp_e(\d{1,6})_")
_MOST_CHARACTERS, _MOST_IDS = 512, 128
"""Length of the prompt prefix that identifies the conversation of a completion."""


@dataclass(frozen=True)
class Conversation:
    """Identity of a conversation, shared by its requests."""

    key: bytes | None = None
    """None if the conversation is unknown."""
    engine: int | None = None
    """The engine that stores the response that the request refers to."""


def response_prefix(engine: int | None) -> str:
    """Return the prefix of an engine's response ids; with several engines it contains the engine's number."""
    return "resp_" if engine is None else f"resp_e{engine}_"


def conversation_of(path: str, body: bytes) -> Conversation:
    """Return the conversation of a request.

    Args:
        path: of the request.
        body: as sent; an unreadable body belongs to no conversation.
    """
    if "/responses/" in path:
        return _kept(path.rpartition("/responses/")[2])
    try:
        request = parsed(body)
    except ApiError:
        return Conversation()
    if not isinstance(request, dict):
        return Conversation()
    previous = request.get("previous_response_id")
    if isinstance(previous, str):
        return _kept(previous)
    beginning = _beginning(request)
    if not beginning:
        return Conversation()
    spelled = json.dumps(beginning, sort_keys=True).encode()
    return Conversation(blake2b(spelled, digest_size=16).digest())


def _kept(response_id: str) -> Conversation:
    found = _RESPONSE.match(response_id)
    return Conversation() if found is None else Conversation(engine=int(found[1]))


def _beginning(request: Mapping[str, Any]) -> object:
    """Return the part of a request that stays the same while its conversation grows."""
    if isinstance(key := request.get("prompt_cache_key"), str):
        return key
    if isinstance(messages := request.get("messages"), list):
        return _until_user(messages)
    if isinstance(prompt := request.get("prompt"), str):
        return prompt[:_MOST_CHARACTERS]
    if isinstance(prompt, list):
        return prompt[:_MOST_IDS] if all(isinstance(token, int) for token in prompt) else None
    given = request.get("input")
    return given and [request.get("instructions"), _until_user(given) if isinstance(given, list) else given]


def _until_user(messages: list[Any]) -> list[Any]:
    """Return messages up to and including the first user message."""
    for place, message in enumerate(messages):
        if isinstance(message, dict) and message.get("role") == "user":
            return messages[: place + 1]
    return messages
