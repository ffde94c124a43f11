"""OpenAI's fields that do not affect the generated text."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from specdec.config import notice

_WHY = {
    "user": "requests are not told apart by user",
    "safety_identifier": "requests are not told apart by user",
    "metadata": "nothing is kept with completions",
    "store": "completions are not stored",
    "service_tier": "all requests are served alike",
    "prompt_cache_key": "the prefix cache finds like prompts by itself",
    "prompt_cache_retention": "the prefix cache keeps what it has room for",
    "prompt_cache_options": "the prefix cache finds like prompts by itself",
    "verbosity": "the model is not told",
    "moderation": "texts are not judged",
}
"""Fields without effect, and why."""


class HarmlessFields(BaseModel):
    """Accepts these fields and logs one notice for each that is sent."""

    model_config = ConfigDict(extra="forbid")

    user: str | None = None
    safety_identifier: str | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    verbosity: str | None = None
    moderation: dict[str, Any] | None = None

    def notice_harmless(self, besides: frozenset[str] = frozenset()) -> None:
        """Log once per process for each field that it has no effect.

        Args:
            besides: fields that have an effect here.
        """
        for name, why in _WHY.items():
            if name not in besides and getattr(self, name) not in (None, False):
                notice(f"request:{name}", f"the field {name!r} of a request has no effect: {why}")
