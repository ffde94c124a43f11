"""The engine requests of one request to the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

from specdec import RequestOutput
from specdec_server.errors import ApiError
from specdec_server.record import CURRENT_RECORD, RequestRecord
from specdec_server.service import Service

Stream = AsyncGenerator[RequestOutput, None]


async def merged(
    streams: Sequence[Stream], service: Service, num_samples: int
) -> AsyncGenerator[tuple[int, RequestOutput], None]:
    """Yield the outputs of several streams with the stream's index. Leaving early aborts streams that still run.

    A slow consumer gets only the newest output of each stream; every output contains all earlier ones.

    Args:
        streams: of the engine, not started.
        service: notified of every stream that begins and ends.
        num_samples: of each stream.

    Raises:
        ApiError: if a sample cannot continue, for no fault of its parameters.
        ConfigError: if the engine rejects one of the requests.
        EngineError: if the engine has failed or is shut down.
    """
    newest: dict[int, RequestOutput | Exception] = {}
    has_news = asyncio.Event()

    async def pump(index: int, stream: Stream) -> None:
        try:
            async with aclosing(stream):
                async for output in stream:
                    newest[index] = output
                    has_news.set()
        except Exception as error:  # raised again where it is awaited
            newest[index] = error
            has_news.set()

    telemetry, client = service.telemetry, service.client
    service.count(client, len(streams))
    tasks = [asyncio.create_task(pump(index, stream)) for index, stream in enumerate(streams)]
    running: dict[int, RequestOutput | None] = dict.fromkeys(range(len(tasks)))
    reason = "abort"
    record = CURRENT_RECORD.get()
    try:
        while running:
            await has_news.wait()
            has_news.clear()
            while newest:
                index = next(iter(newest))
                output = newest.pop(index)
                if isinstance(output, Exception):
                    raise output
                running[index] = output
                if record is not None:
                    record.saw(output)
                if output.finished:
                    del running[index]
                    telemetry.ended(output)
                    _check(output, record)
                yield index, output
    except Exception:
        reason = "error"
        raise
    finally:
        service.count(client, -len(streams))
        for last in running.values():
            telemetry.left(last, num_samples, reason)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def finished(news: AsyncIterator[tuple[int, RequestOutput]]) -> list[RequestOutput]:
    """Return the last output of every stream, in order."""
    last: dict[int, RequestOutput] = {}
    async for index, output in news:
        last[index] = output
    return [last[index] for index in sorted(last)]


def _check(output: RequestOutput, record: RequestRecord | None) -> None:
    """Raise where the engine is at fault for a sample's end; the client's own fault is told in its finish reason."""
    for sample in output.outputs:
        if sample.is_refused and record is not None:
            record.reason = str(sample.stop_reason)
        elif sample.finish_reason == "error" and not sample.is_refused:
            raise ApiError(f"the text cannot go on: {sample.stop_reason}", 500, code="generation_error")
