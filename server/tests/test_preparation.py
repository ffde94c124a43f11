"""Tasks that prepare requests: what ends with them."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial

import pytest

from specdec import EngineError
from specdec_runtime.structured_outputs.trial import deadline
from specdec_server.preparation import Preparation
from specdec_server.threads import DaemonThreads, in_thread


def test_grammars_are_ended_when_the_client_is_told() -> None:
    async def main() -> None:
        preparation, before = Preparation(500.0), time.monotonic()
        found = await preparation.run(deadline.get, "x")
        assert found is not None
        assert before + 500 <= found <= time.monotonic() + 500
        assert deadline.get() is None

    asyncio.run(main())


def test_closing_ends_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specdec_server.threads._IDLE_S", 1000.0)
    end, before = threading.Event(), set(threading.enumerate())

    async def main() -> None:
        preparation = Preparation(60.0, num_places=2)
        await preparation.run(lambda: 1, "x")
        busy = asyncio.create_task(preparation.run(lambda: end.wait() and 5, "x"))
        await asyncio.sleep(0.01)
        preparation.close()
        with pytest.raises(EngineError, match="shut down"):
            await preparation.run(lambda: 1, "y")
        end.set()
        assert await busy == 5, "what has begun is finished"

    asyncio.run(main())
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
        assert not thread.is_alive()


def test_clients_with_as_few_places_take_turns() -> None:
    """One that has many tasks waiting gets no second turn before the others' first."""
    begun, ends = list[str](), [threading.Event() for _ in range(5)]

    async def main() -> None:
        preparation = Preparation(60.0, num_places=2)

        def work(client: str) -> None:
            begun.append(client)
            ends[len(begun) - 1].wait(30)

        async def are_begun(count: int) -> None:
            async with asyncio.timeout(30):
                while len(begun) < count:
                    await asyncio.sleep(0.001)

        tasks = list[asyncio.Task[None]]()
        for num_begun, clients in ((1, "a"), (2, "baac")):
            tasks += [asyncio.create_task(preparation.run(partial(work, name), name)) for name in clients]
            await are_begun(num_begun)
        for num_begun, ended in ((3, 0), (4, 2), (5, 3)):  # b's, the second one, ends late
            ends[ended].set()
            await are_begun(num_begun)
        for end in ends:
            end.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert begun == ["a", "b", "a", "c", "a"]


def test_idle_threads_end_and_work_that_comes_just_then_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specdec_server.threads._IDLE_S", 0.002)
    threads = DaemonThreads("specdec-idle")

    def alive() -> int:
        return sum(thread.name == "specdec-idle" for thread in threading.enumerate())

    for pause in [0.001, 0.002, 0.0021, 0.003] * 50:
        futures = [threads.submit(lambda place=place: place) for place in range(3)]
        assert [future.result(timeout=30) for future in futures] == [0, 1, 2]
        time.sleep(pause)
    until = time.monotonic() + 30
    while alive():
        assert time.monotonic() < until
        time.sleep(0.01)
    assert threads._num_threads == 0
    assert threads._idle._value == 0
    assert threads.submit(lambda: 4).result(timeout=30) == 4


def test_a_client_that_leaves_harms_no_thread() -> None:
    end = threading.Event()

    async def main() -> None:
        left = asyncio.create_task(in_thread(end.wait, 30))
        await asyncio.sleep(0.05)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        end.set()
        assert await in_thread(lambda: 5) == 5

    asyncio.run(main())  # an error in the thread would be a warning, and so an error


def test_threads_see_the_context_of_who_asks() -> None:
    async def main() -> None:
        deadline.set(3.0)
        assert await in_thread(deadline.get) == 3.0

    asyncio.run(main())
