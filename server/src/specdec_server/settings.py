"""Settings of the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from specdec import ConfigError
from specdec_server.limits import Limits

if TYPE_CHECKING:
    from specdec_server.reasoning import ReasoningParser
    from specdec_server.tools import ToolParser


class RequestMetrics(StrEnum):
    """Speculation metrics in the response of a request."""

    NONE = "none"
    SUMMARY = "summary"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the server, without the engine's."""

    model_names: tuple[str, ...]
    """Names that requests may use as `model`; responses use the first one by default."""
    api_key: str | tuple[str, ...] | None = None
    """Accepted key or keys in `Authorization: Bearer ...`; several keys distinguish clients. None disables the check.
    Monitoring paths need no key."""
    allowed_hosts: tuple[str, ...] = ("*",)
    """Names of this server that the Host header may have where no key is required; `*` for all."""
    root: str | None = None
    """Source of the model; None uses its first name."""
    max_logprobs: int = 20
    """Maximum tokens that a request may have listed for each position."""
    allowed_origins: tuple[str, ...] = ()
    """Origins allowed by CORS; `*` for all."""
    request_metrics: RequestMetrics = RequestMetrics.SUMMARY
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Variables of the chat template for requests that do not give them."""
    sampling_defaults: Mapping[str, Any] = field(default_factory=dict)
    """Sampling parameters for requests that do not give them."""
    max_new_tokens: int | None = None
    """Maximum output tokens of any request; None for what fits."""
    tool_parser: type[ToolParser] | None = None
    """Finds tool calls in text; None infers the format from the chat template."""
    reasoning_parser: type[ReasoningParser] | None = None
    """Separates reasoning from the answer; None leaves it in the content."""
    max_stored_responses: int = 1000
    """Maximum responses of `/v1/responses` stored for later requests."""
    limits: Limits = field(default_factory=Limits)
    """Limits and timeouts of requests."""
    engine: int | None = None
    """Number of this engine among several behind one address; None for a single engine."""
    is_access_logged: bool = True
    """Whether each request is logged."""
    is_page_served: bool = True
    """Whether `/` serves the chat page."""
    are_docs_served: bool = True
    """Whether `/docs` serves the API reference and `/openapi.json` its schema."""
    otlp_traces_endpoint: str | None = None
    """OTLP endpoint for the spans of requests."""
    log_every_s: float = 10.0
    """Seconds between two log lines about speculation; 0 for none."""

    def __post_init__(self) -> None:
        if not self.model_names or not all(self.model_names):
            raise ConfigError("a served model needs a name that is not empty")
        if not all(key.strip() for key in self.api_keys):
            raise ConfigError("the key is empty: give one, or leave it out to let everybody in")
        if self.max_stored_responses < 0:
            raise ConfigError(f"max_stored_responses = {self.max_stored_responses} is below 0: 0 keeps none")

    @property
    def api_keys(self) -> tuple[str, ...]:
        """The accepted keys; empty if no key is required."""
        if self.api_key is None:
            return ()
        return (self.api_key,) if isinstance(self.api_key, str) else self.api_key
