"""The requests to the engine that one request to the server makes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

from specdec import RequestOutput
from specdec_server.telemetry import Telemetry

Stream = AsyncGenerator[RequestOutput, None]


async def merged(
    streams: Sequence[Stream], telemetry: Telemetry
) -> AsyncGenerator[tuple[int, RequestOutput], None]:
    """Yield what streams yield as it comes, with the number of the stream. Leaving early aborts those that still run.

    Args:
        streams: of the engine; none has begun.
        telemetry: is told of every one that ends.

    Raises:
        ValueError: if the engine does not take one of them.
        RuntimeError: if the engine has failed.
    """
    news: asyncio.Queue[tuple[int, RequestOutput | Exception]] = asyncio.Queue()

    async def pump(index: int, stream: Stream) -> None:
        try:
            async with aclosing(stream):
                async for output in stream:
                    news.put_nowait((index, output))
        except Exception as error:  # raised again where it is awaited
            news.put_nowait((index, error))

    tasks = [asyncio.create_task(pump(index, stream)) for index, stream in enumerate(streams)]
    num_running = len(tasks)
    telemetry.began(num_running)
    try:
        while num_running:
            index, item = await news.get()
            if isinstance(item, Exception):
                raise item
            if item.finished:
                num_running -= 1
                telemetry.ended(item)
            yield index, item
    finally:
        telemetry.left(num_running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def finished(news: AsyncIterator[tuple[int, RequestOutput]]) -> list[RequestOutput]:
    """Return the last output of every stream, in their order."""
    last: dict[int, RequestOutput] = {}
    async for index, output in news:
        last[index] = output
    return [last[index] for index in sorted(last)]
