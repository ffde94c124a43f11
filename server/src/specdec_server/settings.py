"""How a server answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RequestMetrics(StrEnum):
    """What of speculation a response tells about its own request."""

    NONE = "none"
    SUMMARY = "summary"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is not the engine's."""

    model_names: tuple[str, ...]
    """Names that requests may give as `model`; the first one stands in responses."""
    api_key: str | None = None
    """What `Authorization: Bearer ...` must say under `/v1`; None lets everybody in."""
    request_metrics: RequestMetrics = RequestMetrics.SUMMARY
    log_every_s: float = 10.0
    """Seconds between two lines about speculation in the log; 0 for none."""
