"""Record of a request to the server while it is answered."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from secrets import token_hex
from time import perf_counter

from specdec import RequestOutput


@dataclass
class RequestRecord:
    """Metadata of one request, without its text."""

    method: str
    path: str
    client: str
    """The client: a name derived from its key, or its address."""
    request_id: str = field(default_factory=lambda: token_hex(8))
    started: float = field(default_factory=perf_counter)
    status: int | None = None
    """None until the response starts."""
    reason: str | None = None
    """Why it was refused or failed."""
    outputs: dict[str, RequestOutput] = field(default_factory=dict)
    """The latest output of each engine request, by its id."""

    def saw(self, output: RequestOutput) -> None:
        """Record the latest output of an engine request."""
        self.outputs[output.request_id] = output

    @property
    def seconds(self) -> float:
        """Seconds since the request arrived."""
        return perf_counter() - self.started


CURRENT_RECORD: ContextVar[RequestRecord | None] = ContextVar("specdec_request", default=None)
"""The record of the current request; None outside of requests."""
