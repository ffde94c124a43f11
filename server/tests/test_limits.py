"""What one request, or one client, may take of the server."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from specdec import ConfigError
from specdec_server.body import BodyLimit
from specdec_server.client import client_of
from specdec_server.connection import limited_by
from specdec_server.errors import ApiError
from specdec_server.limits import Limits
from specdec_server.preparation import Preparation
from specdec_server.queueing import QueueLimit

LIMITS = Limits(max_request_bytes=1000, header_timeout_s=0.3, body_timeout_s=0.3, idle_timeout_s=0.3)


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the length of the body; at `/much` with more than any buffer holds."""
    message = {} if scope["path"] == "/refused" else await receive()
    body = str(len(message.get("body", b""))).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/much":
        for _ in range(400):
            await send({"type": "http.response.body", "body": bytes(100_000), "more_body": True})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def listening() -> Iterator[int]:
    """Serve `echo` behind the limits; gives the port."""
    limited = BodyLimit(echo, LIMITS)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse without reading the body at `/refused`, as the check of the key does."""
        await (echo if scope["path"] == "/refused" else limited)(scope, receive, send)

    config = uvicorn.Config(
        app, log_level="error", http=limited_by(LIMITS), lifespan="off", timeout_keep_alive=1
    )  # fmt: skip
    server = uvicorn.Server(config)
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)) as listener:
        listener.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.005)
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with listening() as found:
        yield found


def post(port: int, body: object) -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/", body, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())["error"]["message"]


def test_bodies_have_a_longest_length(port: int) -> None:
    assert post(port, b"x" * 1000) == (200, "1000")
    status, told = post(port, b"x" * 1001)
    assert (status, "1001 bytes" in told, "--max-request-bytes" in told) == (413, True, True)
    assert post(port, iter([b"x" * 600] * 20))[0] == 413  # in pieces, whose number is not told


def test_all_bodies_together_have_a_greatest_length(port: int) -> None:
    """Bodies that wait for their last byte fill the memory; when they are gone others come in again."""
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(32):
            connection = stack.enter_context(closing(socket.create_connection(("127.0.0.1", port))))
            connection.sendall(head + b"x" * 999)
        time.sleep(0.1)
        status, told = post(port, b"x" * 500)
        assert (status, "send this one again later" in told) == (503, True)
    for _ in range(100):
        if post(port, b"x" * 500) == (200, "500"):
            break
        time.sleep(0.02)
    else:
        pytest.fail("the bytes of bodies that nobody waits for are not given back")


def talk(port: int, *pieces: bytes, seconds: float = 10.0) -> tuple[bytes, float]:
    """Send pieces, and return what comes until the server ends the connection, and after how long it does."""
    with closing(socket.create_connection(("127.0.0.1", port))) as connection:
        connection.settimeout(seconds)
        begun = time.monotonic()
        for piece in pieces:
            connection.sendall(piece)
        found = b""
        while more := connection.recv(65536):
            found += more
        return found, time.monotonic() - begun


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", b""),
        (b"POST / HTTP/1.1\r\nHost: x\r\n", b"HTTP/1.1 408"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc", b"HTTP/1.1 408"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc", b"HTTP/1.1 408"),
        (b"OPTIONS / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n", b"HTTP/1.1 408"),
    ],
    ids=["nothing", "half a header", "half a body", "half a body of GET", "a chunk of OPTIONS"],
)
def test_what_is_not_sent_in_time_is_not_waited_for(port: int, sent: bytes, status: bytes) -> None:
    answer, seconds = talk(port, sent)
    assert answer.startswith(status)
    assert bool(answer) == bool(status)
    assert seconds > 0.2


@pytest.mark.parametrize("path", ["/", "/refused"])
@pytest.mark.parametrize("method", [b"GET", b"POST"])
def test_a_body_of_a_byte_now_and_then_does_not_outlive_the_limits(
    port: int, method: bytes, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the body is waited for or the request was answered without it."""
    monkeypatch.setattr("specdec_server.connection._BODY_GRACE_S", 0.5)
    head = b"%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n" % (method, path.encode())
    with closing(socket.create_connection(("127.0.0.1", port))) as connection:
        connection.sendall(head)
        begun = time.monotonic()
        with suppress(ConnectionError):
            while time.monotonic() - begun < 20:
                connection.sendall(b"x")
                time.sleep(0.05)
    assert time.monotonic() - begun < 10


def test_headers_have_a_longest_length(port: int) -> None:
    answer, _ = talk(port, b"GET / HTTP/1.1\r\n" + b"X-Much: " + b"x" * 70_000)
    assert answer.startswith(b"HTTP/1.1 431")


def test_a_connection_takes_several_requests_and_then_ends(port: int) -> None:
    one = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab"
    answer, seconds = talk(port, one, one)
    assert answer.count(b"HTTP/1.1 200") == 2
    assert seconds > 0.5


def test_who_takes_nothing_of_an_answer_is_left() -> None:
    with listening() as port, closing(socket.socket()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", port))
        connection.sendall(b"GET /much HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(1.0)
        connection.settimeout(10)
        length = 0
        while more := connection.recv(65536):
            length += len(more)
        assert 0 < length < 40_000_000


@dataclass
class Waiting:
    load = 0
    num_queued: int = 0
    num_ended: int = 0
    has_share: bool = False


def test_the_queue_has_a_longest_length() -> None:
    waiting, seen = Waiting(), []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["path"])

    limit = QueueLimit(app, waiting, 2)

    async def ask(path: str) -> list:
        answer = []

        async def send(message: dict) -> None:
            answer.append(message)

        await limit({"type": "http", "path": path, "headers": []}, lambda: None, send)
        return answer

    waiting.num_queued = 1
    assert asyncio.run(ask("/v1/completions")) == []
    waiting.num_queued, waiting.num_ended = 2, 1000
    start, body = asyncio.run(ask("/v1/completions"))
    assert start["status"] == 429
    assert dict(start["headers"])[b"retry-after"] == b"1"
    assert "--max-queued-requests" in json.loads(body["body"])["error"]["message"]
    waiting.num_ended = 0
    start, _ = asyncio.run(ask("/v1/chat/completions"))
    assert dict(start["headers"])[b"retry-after"] == b"60"
    assert asyncio.run(ask("/health")) == []
    waiting.num_queued, waiting.has_share = 3, True
    assert asyncio.run(ask("/v1/responses")) == [], "others have filled the queue"
    waiting.num_queued = 4
    assert asyncio.run(ask("/v1/responses"))[0]["status"] == 429
    assert seen == ["/v1/completions", "/health", "/v1/responses"]


def test_one_client_never_has_all_places() -> None:
    end = threading.Event()

    async def main() -> None:
        preparation = Preparation(600.0, num_places=2)
        slow = [asyncio.create_task(preparation.run(end.wait, "greedy")) for _ in range(6)]
        while preparation.num_requests < 6:
            await asyncio.sleep(0)
        assert await asyncio.wait_for(preparation.run(lambda: 3, "other"), 60) == 3
        end.set()
        assert await asyncio.gather(*slow) == [True] * 6

    asyncio.run(main())


def test_preparing_takes_limited_time() -> None:
    end = threading.Event()

    async def main() -> None:
        preparation = Preparation(1.0, num_places=2)
        slow = [asyncio.create_task(preparation.run(end.wait, "greedy")) for _ in range(6)]
        answers = await asyncio.gather(*slow, return_exceptions=True)
        assert {type(answer) for answer in answers} == {ApiError}
        assert {answer.status for answer in answers} == {400, 503}
        assert "--prepare-timeout" in next(str(answer) for answer in answers if answer.status == 400)
        assert await preparation.run(lambda: 4, "greedy") == 4
        assert preparation.num_requests == 0
        end.set()

    asyncio.run(main())


@pytest.mark.parametrize("is_granted_first", [True, False])
@pytest.mark.parametrize("ends", ["timeout", "cancel"])
def test_a_place_granted_when_the_wait_ends_is_not_lost(ends: str, is_granted_first: bool) -> None:
    """Whether the place is granted or the wait ended first, both in one turn of the loop."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        preparation = Preparation(0.05 if ends == "timeout" else 60.0, num_places=1)
        preparation._running["x"] = 1  # the only place is taken
        waiting = asyncio.create_task(preparation.run(lambda: 5, "y"))
        await asyncio.sleep(0)

        def grant() -> None:
            preparation._leave("x")

        order = [grant, waiting.cancel] if is_granted_first else [waiting.cancel, grant]
        if ends == "cancel":
            for step in order:
                loop.call_soon(step)
        else:  # what is due at one time runs in one turn, in this order
            due = loop.time() + 0.05
            loop.call_at(due - 0.001 if is_granted_first else due + 0.001, grant)
            time.sleep(0.1)
        answer = (await asyncio.gather(waiting, return_exceptions=True))[0]
        if ends == "timeout":
            assert answer == 5 or answer.status == 503
        else:
            assert isinstance(answer, asyncio.CancelledError)
        assert await preparation.run(lambda: 4, "z") == 4, "the place is free"
        assert preparation.num_requests == 0

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_place_is_not_lost_where_no_thread_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        preparation = Preparation(5.0, num_places=1)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="start new thread"):
                await preparation.run(lambda: 1, "x")
        assert await preparation.run(lambda: 1, "x") == 1

    asyncio.run(main())


def test_errors_of_preparing_are_told() -> None:
    def fail() -> None:
        raise ConfigError("no prompt")

    async def main() -> None:
        preparation = Preparation(5.0)
        for _ in range(10):
            with pytest.raises(ConfigError, match="no prompt"):
                await preparation.run(fail, "x")
        assert preparation.num_requests == 0

    asyncio.run(main())


def test_work_that_never_ends_takes_no_more_than_its_threads() -> None:
    end = threading.Event()
    before = set(threading.enumerate())  # those of other tests may be idle

    async def main() -> None:
        preparation = Preparation(0.02, num_places=2)
        for _ in range(12):
            with pytest.raises(ApiError):
                await preparation.run(end.wait, "x")
        names = [thread.name for thread in threading.enumerate() if thread not in before]
        assert 2 <= names.count("specdec-prepare") <= 8 + 2
        end.set()
        for _ in range(1000):  # its time is short for a busy machine
            with suppress(ApiError):
                assert await preparation.run(lambda: 1, "x") == 1
                break
        else:
            pytest.fail("the places of what took too long are not free again")

    asyncio.run(main())


def test_clients_are_told_apart_by_key_or_address() -> None:
    scope = {"client": ("10.0.0.7", 5), "headers": [(b"authorization", b"Bearer sesame")]}
    assert client_of(scope, by_key=False) == "10.0.0.7"
    name = client_of(scope, by_key=True)
    assert name.startswith("key-")
    assert "sesame" not in name
    assert client_of(scope | {"headers": []}, by_key=True) == "10.0.0.7"
    assert client_of({"client": None, "headers": []}, by_key=False) == "unknown"


@pytest.mark.parametrize("name", ["max_request_bytes", "max_queued_requests", "header_timeout_s"])
def test_limits_are_above_zero(name: str) -> None:
    with pytest.raises(ConfigError, match=name.removesuffix("_s").replace("_", "-")):
        Limits(**{name: 0})


def test_who_is_refused_comes_back_when_half_of_the_queue_has_run() -> None:
    async def app(*_: object) -> None: ...

    limit = QueueLimit(app, SimpleNamespace(num_queued=39, has_share=False, num_ended=20), 39)
    limit._then -= 10.0
    assert limit._seconds_until(39) == 10, "at two requests a second"
