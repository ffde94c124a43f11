"""What is known of a request to the server while it is answered."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from secrets import token_hex
from time import perf_counter

from specdec import RequestOutput


@dataclass
class RequestRecord:
    """Facts about one request; nothing of its text."""

    method: str
    path: str
    client: str
    """Who asks: the name of a key, or an address."""
    request_id: str = field(default_factory=lambda: token_hex(8))
    started: float = field(default_factory=perf_counter)
    status: int | None = None
    """None until there is an answer."""
    outputs: dict[str, RequestOutput] = field(default_factory=dict)
    """The last output of each request to the engine, by its id."""

    def saw(self, output: RequestOutput) -> None:
        """Take note of how far a request to the engine has come."""
        self.outputs[output.request_id] = output

    @property
    def seconds(self) -> float:
        """Time since the request came in."""
        return perf_counter() - self.started


_CURRENT: ContextVar[RequestRecord | None] = ContextVar("specdec_request", default=None)


def current_record() -> RequestRecord | None:
    """Return the record of the request that is answered now; None outside of any."""
    return _CURRENT.get()


def set_current(record: RequestRecord) -> None:
    """Make a record that of everything that is done from now on for the request."""
    _CURRENT.set(record)
