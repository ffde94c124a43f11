"""Why a request ended."""

from __future__ import annotations

from enum import Enum


class FinishReason(Enum):
    """Why a request left the engine, or why a proposer must drop its state of the request."""

    STOP = "stop"
    """An end-of-text id, a stop id or a stop string."""

    LENGTH = "length"
    """`max_tokens` or the model's context window."""

    ABORT = "abort"
    """Aborted by the caller. A proposer must not learn from it."""

    ERROR = "error"
    """The proposer raised: it must drop its state, and everything is delivered again from position 0. For a
    request that ended: no token could be chosen, because its sampling parameters forbid all of them, a
    logits processor raised or the logits are not numbers; or its last tokens were not delivered, because the
    proposer was paused, or drafting was suspended (`adaptive`) and it needs hidden states or keeps a cache."""
