"""Which conversation a request belongs to, so that the engine that has its beginning in the prefix cache gets it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

_RESPONSE = re.compile(r"resp_e(\d{1,6})_")
_MOST_CHARACTERS, _MOST_IDS = 512, 128
"""How much of the prompt of a completion tells conversations apart."""


@dataclass(frozen=True)
class Conversation:
    """What two requests of one conversation have in common."""

    key: bytes | None = None
    """None where nothing tells which one it is."""
    engine: int | None = None
    """The engine that keeps what the request refers to."""


def response_prefix(engine: int | None) -> str:
    """Return how the ids of an engine's responses begin: they tell which engine keeps them, where there are several."""
    return "resp_" if engine is None else f"resp_e{engine}_"


def conversation_of(path: str, body: bytes) -> Conversation:
    """Return the conversation of a request.

    Args:
        path: of the request.
        body: as it was sent; what cannot be read belongs to none.
    """
    if "/responses/" in path:
        return _kept(path.rpartition("/responses/")[2])
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
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
    """Return what stays the same while a conversation grows."""
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
    """Return messages up to the first one of the user."""
    for place, message in enumerate(messages):
        if isinstance(message, dict) and message.get("role") == "user":
            return messages[: place + 1]
    return messages
