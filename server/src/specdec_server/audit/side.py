"""One of the two ways to be asked: with speculation or without."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specdec import ConfigError
from specdec_server.audit.answer import Answer
from specdec_server.audit.drafting import Drafting
from specdec_server.audit.endpoint import Endpoint, RefusedError, Reply
from specdec_server.audit.prompts import Prompt

Tick = Callable[[int], None]
"""Is told how many samples have come."""
NUM_TOP = 5
"""Tokens whose log probabilities are asked for at each position: OpenAI's most."""
SETTLE_S = 0.2
"""Seconds until counters have what the last answer took."""
MOST_SAMPLES = 16
"""Samples that one request asks for, where the server makes several."""


@dataclass
class Side:
    """A server, and the fields that its requests have besides.

    `probe` finds out what the server can tell, before anything else is asked.
    """

    name: str
    endpoint: Endpoint
    fields: Mapping[str, Any]
    told: dict[str, Any] = field(default_factory=dict)
    """Fields that ask for ids and log probabilities, those that the server takes."""
    most_samples: int = 1
    drafting: Drafting | None = None
    """What was drafted over all that was asked so far; None if that is not known."""

    async def probe(self, prompt: Prompt) -> None:
        """Find out whether the server tells token ids and log probabilities, and makes several samples at once.

        Raises:
            ConfigError: if it does not answer at all.
        """
        wanted: tuple[dict[str, Any], ...] = (
            {"return_token_ids": True, "logprobs": NUM_TOP},
            {"logprobs": NUM_TOP},
            {"return_token_ids": True},
            {},
        )
        first: ConfigError | None = None
        for told in wanted:
            body = {"prompt": prompt, "max_tokens": 2, "temperature": 1.0, "n": 2, **self.fields, **told}
            for many in (body, {**body, "n": 1}):
                try:
                    reply = await self.endpoint.complete(many)
                except RefusedError as error:
                    first = first or error
                    continue
                self.told = {key: value for key, value in told.items() if _is_told(key, reply.answers[0])}
                self.most_samples = MOST_SAMPLES if len(reply.answers) > 1 else 1
                return
        assert first is not None
        raise ConfigError(f"{first}; asked {self.name}")

    async def ask(
        self, prompts: Sequence[Prompt], body: Mapping[str, Any], *, num_samples: int, width: int, tick: Tick
    ) -> list[list[Reply]]:
        """Return the replies to every prompt, whose answers together are the samples.

        Args:
            prompts: in order.
            body: fields of all requests.
            num_samples: of each prompt.
            width: requests that wait for answers at a time; 1 asks one after another.
            tick: is told of samples as they come.

        Raises:
            ConfigError: if the server does not answer.
        """
        before = await self.endpoint.drafting()
        places = asyncio.Semaphore(width)

        async def one(prompt: Prompt, count: int) -> Reply:
            async with places:
                extra = {"n": count} if count > 1 else {}
                reply = await self.endpoint.complete({"prompt": prompt, **body, **extra, **self.fields})
            if len(reply.answers) != count:
                raise ConfigError(
                    f"{self.endpoint.url} was asked for {count} samples and gave {len(reply.answers)}"
                )
            tick(count)
            return reply

        sizes = _sizes(num_samples, self.most_samples)
        tasks = [[asyncio.create_task(one(prompt, size)) for size in sizes] for prompt in prompts]
        try:
            replies = [list(await asyncio.gather(*row)) for row in tasks]
        except BaseException:
            every = [task for row in tasks for task in row]
            for task in every:
                task.cancel()
            await asyncio.gather(*every, return_exceptions=True)
            raise
        if before is not None:
            await asyncio.sleep(SETTLE_S)
        self._count(before, await self.endpoint.drafting(), replies)
        return replies

    def _count(
        self, before: Drafting | None, after: Drafting | None, replies: Sequence[Sequence[Reply]]
    ) -> None:
        """Take in what was drafted: by `/metrics`, or else as the responses themselves tell."""
        if before is not None and after is not None:
            self.drafting = (self.drafting or Drafting(0, 0, 0)) + (after - before)
            return
        for row in replies:
            for reply in row:
                if reply.drafting is not None:
                    self.drafting = (self.drafting or Drafting(0, 0, 0)) + reply.drafting


def _is_told(field_name: str, answer: Answer) -> bool:
    """Return whether a server that was asked for something gave it."""
    if field_name == "logprobs":
        return answer.places is not None
    return answer.tokens is not None and all(isinstance(token, int) for token in answer.tokens)


def _sizes(num_samples: int, most: int) -> list[int]:
    whole, rest = divmod(num_samples, most)
    return [most] * whole + [rest] * (rest > 0)
