"""What is written to a client that has left."""

from __future__ import annotations

import logging
import socket
import struct
import time
from contextlib import closing

import pytest
from servercheck.served import Served


def test_clients_that_leave_between_pipelined_requests_leave_no_traceback(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    port = int(served.url.rpartition(":")[2])
    one = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with caplog.at_level(logging.ERROR):
        for _ in range(30):
            with closing(socket.create_connection(("127.0.0.1", port))) as connection:
                # A connection that is closed this way is reset.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.sendall(one * 5)
                connection.recv(1000)
        time.sleep(0.3)
    assert [record.getMessage() for record in caplog.records] == []
