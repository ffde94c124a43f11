"""HTTP connections with timeouts for clients that send or read nothing."""

from __future__ import annotations

from asyncio import TimerHandle, Transport
from functools import partial
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from specdec_server.limits import Limits

_MAX_HEADER_BYTES = 65536
_BODY_GRACE_S = 6.0
"""Seconds that a client has after the timeout of its body, which it may still send while it is refused."""


class LimitedConnection(HttpToolsProtocol):
    """One connection with limits on the time and the length of headers, and on the time a client reads nothing.

    Args:
        limits: the timeouts.
        config: of uvicorn.
        **arguments: further arguments of uvicorn's protocol.
    """

    def __init__(self, limits: Limits, config: Config, **arguments: Any) -> None:
        super().__init__(config, **arguments)
        self._limits = limits
        self._header_timer: TimerHandle | None = None
        self._body_timer: TimerHandle | None = None
        self._write_timer: TimerHandle | None = None
        self._num_header_bytes = 0
        self._num_bodies_due = 0

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Start the header timeout."""
        super().connection_made(transport)
        self.transport = cast(Transport, _Open(transport))
        self._expect_header()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers."""
        self._header_timer = _cancelled(self._header_timer)
        self._body_timer = _cancelled(self._body_timer)
        self._write_timer = _cancelled(self._write_timer)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process a part of a request."""
        if self._header_timer is None and self._num_bodies_due == 0:
            self._expect_header()
        if self._header_timer is not None:
            self._num_header_bytes += len(data)
        super().data_received(data)
        if self._header_timer is not None and self._num_header_bytes > _MAX_HEADER_BYTES:
            self._refuse(431, f"The header of the request is longer than {_MAX_HEADER_BYTES} bytes.")

    def on_headers_complete(self) -> None:
        """Begin a request."""
        self._header_timer = _cancelled(self._header_timer)
        self._num_bodies_due += 1
        if self._body_timer is None:
            # `BodyLimit` answers in time; this ends connections whose requests were answered before their bodies came.
            seconds = self._limits.body_timeout_s + _BODY_GRACE_S
            self._body_timer = self.loop.call_later(seconds, self.transport.abort)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End the body of a request."""
        self._num_bodies_due -= 1
        self._body_timer = _cancelled(self._body_timer)
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Start the timeout for the client to read buffered data."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(self._limits.idle_timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Cancel the write timeout."""
        self._write_timer = _cancelled(self._write_timer)
        super().resume_writing()

    def _expect_header(self) -> None:
        self._num_header_bytes = 0
        self._header_timer = self.loop.call_later(self._limits.header_timeout_s, self._give_up)

    def _give_up(self) -> None:
        seconds = self._limits.header_timeout_s
        self._refuse(
            408, f"The header of the request did not arrive within {seconds:g} s (--header-timeout)."
        )

    def _refuse(self, status: int, message: str) -> None:
        self._header_timer = _cancelled(self._header_timer)
        if self.transport.is_closing():
            return
        if self._num_header_bytes:
            reason = {408: "Request Timeout", 431: "Request Header Fields Too Large"}[status]
            head = (
                f"HTTP/1.1 {status} {reason}\r\ncontent-type: text/plain; charset=utf-8\r\n"
                f"content-length: {len(message)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write((head + message).encode("ascii"))
        self.transport.close()


class _Open:
    """A transport that drops what is written after its client has left, where uvloop's raises an error.

    Args:
        transport: of the connection.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def write(self, data: bytes) -> None:
        """Send data, if the connection is open."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def limited_by(limits: Limits) -> Any:
    """Return a factory of connections with these limits, for uvicorn's option `http`."""
    return partial(LimitedConnection, limits)


def _cancelled(timer: TimerHandle | None) -> TimerHandle | None:
    if timer is not None:
        timer.cancel()
    return None
