"""Why a request ended."""

from __future__ import annotations

from enum import Enum


class FinishReason(Enum):
    """Why a request left the engine, or why a proposer must drop its state of it."""

    STOP = "stop"
    """An end-of-text id, a stop id or a stop string."""

    LENGTH = "length"
    """`max_tokens` or the model's context window."""

    ABORT = "abort"
    """Given up by the caller. A proposer must not learn from it."""

    ERROR = "error"
    """The proposer raised: drop the state, everything is delivered again from position 0. As the end of a request: nothing
    can be chosen any more, because its sampling parameters forbid everything or a logits processor raised; or its last tokens
    were not told, because the proposer rested (`adaptive`) and needs states or keeps a cache."""
