"""Which Host headers a server without a key accepts."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from servercheck.served import serving
from starlette.types import Message, Receive, Scope, Send

from specdec_cli.main import run
from specdec_server import Settings
from specdec_server.host import HostCheck, names_of


def status_for(host: str | None, names: tuple[str, ...], path: str = "/v1/models") -> int:
    """Return 200 if a request comes in."""
    seen: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(200)

    async def send(message: Message) -> None:
        if "status" in message:
            seen.append(message["status"])

    async def receive() -> Message:
        raise AssertionError("nothing of the body is read")

    headers = [] if host is None else [(b"host", host.encode("latin-1"))]
    asyncio.run(
        HostCheck(app, names)(
            {"type": "http", "path": path, "root_path": "", "headers": headers}, receive, send
        )
    )
    (status,) = seen
    return status


OURS = ["localhost", "LocalHost:8000", "localhost.", "a.localhost:1", "127.0.0.1:8000", "127.9.9.9", "[::1]:8000",
        "192.168.1.5:8000", "Box:8000", socket.gethostname()]  # fmt: skip
FOREIGN = ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example", "evillocalhost", "",
           "[::1].evil.example", "box.evil", "1.2.3", "0x7f000001", "é", "[evil.example]:80"]  # fmt: skip


@pytest.mark.parametrize("host", OURS)
def test_names_of_this_machine_and_addresses_come_in(host: str) -> None:
    assert status_for(host, names_of("box")) == 200


@pytest.mark.parametrize("host", [*FOREIGN, None])
def test_names_of_other_sites_do_not(host: str | None) -> None:
    assert status_for(host, names_of("box")) == 403
    assert status_for(host, ("*",)) == 200


def test_more_names_may_be_allowed_and_monitoring_needs_none() -> None:
    assert status_for("llm.example:8000", (*names_of("127.0.0.1"), "LLM.example")) == 200
    assert status_for("evil.example", names_of("127.0.0.1"), "/health") == 200
    assert status_for("evil.example", names_of("127.0.0.1"), "/server_info") == 403


def test_a_key_takes_the_place_of_the_check() -> None:
    foreign, key = {"Host": "evil.example"}, {"Authorization": "Bearer sesame"}
    body = {"prompt": "x", "max_tokens": 1}
    with serving(
        Settings(model_names=("zoo",), log_every_s=0.0, allowed_hosts=names_of("127.0.0.1"))
    ) as served:
        status, told = served.error("/v1/completions", body, foreign)
        assert (status, "--allowed-hosts" in told, "'evil.example'" in told) == (403, True, True)
        assert served.ask("/v1/completions", body)[0] == 200
        assert served.ask("/", headers=foreign)[0] == 403
    settings = Settings(
        model_names=("zoo",), log_every_s=0.0, api_key="sesame", allowed_hosts=names_of("127.0.0.1")
    )
    with serving(settings) as served:
        assert served.ask("/v1/completions", body, foreign | key)[0] == 200


def test_a_wrong_list_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--port", "0", "--allowed-hosts", "llm.example"]) == 2
    assert "--allowed-hosts 'llm.example' is not a JSON list" in capsys.readouterr().err.splitlines()[-1]
