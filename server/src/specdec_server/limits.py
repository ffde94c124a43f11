"""How much the server takes at once, and how long it waits."""

from __future__ import annotations

from dataclasses import dataclass

from specdec import ConfigError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a request, and all of them together, may take.

    Raises:
        ConfigError: for a limit that is not above 0.
    """

    max_request_bytes: int = 8 * 1024 * 1024
    """The most bytes of a request's body; a longer one is refused with status 413."""
    max_queued_requests: int = 2048
    """The most requests that wait to run; a further one is refused with status 429."""
    header_timeout_s: float = 10.0
    """Seconds in which a client must have sent the header of a request."""
    body_timeout_s: float = 60.0
    """Seconds in which a client must have sent the body of a request."""
    idle_timeout_s: float = 30.0
    """Seconds that a connection stays open without a request, or while its client takes nothing of an answer."""
    prepare_timeout_s: float = 10.0
    """Seconds that tokenizing a prompt and compiling its grammar may take."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                option = name.removesuffix("_s").replace("_", "-")
                raise ConfigError(f"--{option} {value} must be above 0")
