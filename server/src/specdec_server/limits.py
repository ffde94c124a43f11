"""Limits and timeouts of the server."""

from __future__ import annotations

from dataclasses import dataclass

from specdec import ConfigError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on single requests and on all requests together.

    Raises:
        ConfigError: for a limit that is not above 0.
    """

    max_request_bytes: int = 8 * 1024 * 1024
    """Maximum bytes of a request body; longer ones are rejected with status 413."""
    max_queued_requests: int = 2048
    """Maximum requests that wait to run; further ones are rejected with status 429."""
    header_timeout_s: float = 10.0
    """Seconds within which a client must send the header of a request."""
    body_timeout_s: float = 60.0
    """Seconds within which a client must send the body of a request."""
    idle_timeout_s: float = 30.0
    """Seconds that a connection stays open without a request, or while its client reads nothing of a response."""
    prepare_timeout_s: float = 10.0
    """Maximum seconds for tokenizing a prompt and compiling its grammar."""

    @property
    def max_batch(self) -> int:
        """Maximum prompts of one request, so that none fills the queue."""
        return max(16, self.max_queued_requests // 2)

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                option = name.removesuffix("_s").replace("_", "-")
                raise ConfigError(f"--{option} {value} must be above 0")
