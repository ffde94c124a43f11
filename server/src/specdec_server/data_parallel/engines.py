"""Supervises all engine processes and routes requests to them."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic

from specdec_server.data_parallel.conversation import Conversation
from specdec_server.data_parallel.engine import EngineEndedError, EngineProcess

logger = logging.getLogger("specdec")

MOST_AHEAD = 4
"""A conversation leaves its engine if it has this many more running requests than the least busy one."""
_MOST_CONVERSATIONS = 65536
_SOON_S = 60.0
_FIRST_DELAY_S, _MOST_DELAY_S = 1.0, 30.0


class Engines:
    """Starts engines, restarts those that end, and selects the engine for each request.

    Args:
        engines: in the order of their numbers.
    """

    def __init__(self, engines: Sequence[EngineProcess]) -> None:
        self.all = tuple(engines)
        self.num_restarts = [0] * len(engines)
        """Restarts of each engine."""
        self.is_stopping = False
        self._homes: OrderedDict[bytes, int] = OrderedDict()
        self._keepers: list[asyncio.Task[None]] = []

    @property
    def ready(self) -> list[EngineProcess]:
        """The engines that are ready."""
        return [engine for engine in self.all if engine.is_ready]

    async def start(self) -> None:
        """Start all engines together.

        Raises:
            EngineEndedError: if one of them ends before it is ready.
        """
        await asyncio.gather(*(engine.start() for engine in self.all))
        self._keepers = [asyncio.create_task(self._keep(engine)) for engine in self.all]

    async def stop(self) -> None:
        """Stop all engines."""
        self.is_stopping = True
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await asyncio.gather(*(engine.stop() for engine in self.all))

    def choose(self, conversation: Conversation) -> EngineProcess | None:
        """Return the engine for a request: the conversation's, else the least busy one; None if none is ready."""
        ready = self.ready
        if not ready:
            return None
        if conversation.engine is not None:
            with suppress(IndexError):
                if self.all[conversation.engine].is_ready:
                    return self.all[conversation.engine]
        chosen = min(ready, key=lambda engine: (engine.num_running, engine.num_served))
        if conversation.key is None:
            return chosen
        home = self._homes.pop(conversation.key, None)
        if home is not None and self._is_free(self.all[home], chosen):
            chosen = self.all[home]
        self._homes[conversation.key] = chosen.index
        if len(self._homes) > _MOST_CONVERSATIONS:
            self._homes.popitem(last=False)
        return chosen

    def _is_free(self, engine: EngineProcess, other: EngineProcess) -> bool:
        return engine.is_ready and engine.num_running < other.num_running + MOST_AHEAD

    async def _keep(self, engine: EngineProcess) -> None:
        delay = 0.0
        while True:
            started = monotonic()
            reason = await engine.until_failed()
            logger.error("engine %d %s: it is started again", engine.index, reason)
            delay = 0.0 if monotonic() - started > _SOON_S else delay
            while not engine.is_ready:
                await asyncio.sleep(delay)
                delay = min(2 * delay or _FIRST_DELAY_S, _MOST_DELAY_S)
                self.num_restarts[engine.index] += 1
                try:
                    await engine.start()
                except EngineEndedError as error:
                    logger.error("%s: it is tried again in %g s", error, delay)
            logger.info("engine %d serves again", engine.index)
