"""How a server answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from specdec import ConfigError
from specdec_server.limits import Limits

if TYPE_CHECKING:
    from specdec_server.reasoning import ReasoningParser
    from specdec_server.tools import ToolParser


class RequestMetrics(StrEnum):
    """What of speculation a response tells about its own request."""

    NONE = "none"
    SUMMARY = "summary"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is not the engine's."""

    model_names: tuple[str, ...]
    """Names that requests may give as `model`; the first one is given in responses."""
    api_key: str | tuple[str, ...] | None = None
    """What `Authorization: Bearer ...` must say, or one of several, which tell clients apart; None lets everybody in. Whether
    the server is well is told without it."""
    root: str | None = None
    """Where the model comes from; None says its first name."""
    max_logprobs: int = 20
    """The most tokens that a request may have listed for each position."""
    allowed_origins: tuple[str, ...] = ()
    """Pages whose scripts may send requests; `*` for all."""
    request_metrics: RequestMetrics = RequestMetrics.SUMMARY
    tool_parser: type[ToolParser] | None = None
    """Finds calls of tools in text; None infers the format from the chat template."""
    reasoning_parser: type[ReasoningParser] | None = None
    """Tells reasoning from the answer; None leaves it in the content."""
    max_stored_responses: int = 1000
    """The most answers of `/v1/responses` that are kept for requests that go on from them."""
    limits: Limits = field(default_factory=Limits)
    """What requests may take."""
    engine: int | None = None
    """Which of several engines behind one address this is; None if it is alone."""
    is_access_logged: bool = True
    """Whether each request has a line in the log."""
    is_page_served: bool = True
    """Whether `/` is a page to chat with the model."""
    are_docs_served: bool = True
    """Whether `/docs` is the API's reference and `/openapi.json` its schema."""
    otlp_traces_endpoint: str | None = None
    """Where spans of requests are sent to."""
    log_every_s: float = 10.0
    """Seconds between two lines about speculation in the log; 0 for none."""

    def __post_init__(self) -> None:
        if not self.model_names or not all(self.model_names):
            raise ConfigError("a served model needs a name that is not empty")
        if not all(key.strip() for key in self.api_keys):
            raise ConfigError("the key is empty: give one, or leave it out to let everybody in")
        if self.max_stored_responses < 0:
            raise ConfigError(f"max_stored_responses = {self.max_stored_responses} is below 0: 0 keeps none")

    @property
    def api_keys(self) -> tuple[str, ...]:
        """The keys that let in; none for everybody."""
        if self.api_key is None:
            return ()
        return (self.api_key,) if isinstance(self.api_key, str) else self.api_key
