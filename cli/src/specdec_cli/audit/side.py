"""One side of the comparison: with or without speculation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specdec import ConfigError
from specdec_cli.audit.answer import Answer
from specdec_cli.audit.drafting import Drafting
from specdec_cli.audit.endpoint import Endpoint, RefusedError, Reply
from specdec_cli.audit.prompts import Prompt

Tick = Callable[[int], None]
"""Called with the number of samples that have arrived."""
NUM_TOP = 5
"""Tokens whose log probabilities are requested at each position: OpenAI's maximum."""
SETTLE_S = 0.2
"""Seconds until the counters include the last answer."""
MOST_SAMPLES = 16
"""Samples per request, if the server supports several."""


@dataclass
class Side:
    """A server, and additional fields of its requests.

    `probe` must be called first; it detects what the server can return.
    """

    name: str
    endpoint: Endpoint
    fields: Mapping[str, Any]
    reported: dict[str, Any] = field(default_factory=dict)
    """Fields that request ids and log probabilities, as far as the server supports them."""
    most_samples: int = 1
    drafting: Drafting | None = None
    """Draft counts over all requests so far; None if unknown."""

    async def probe(self, prompt: Prompt) -> None:
        """Detect whether the server returns token ids and log probabilities, and several samples per request.

        Raises:
            ConfigError: if it rejects every request or does not answer.
        """
        wanted: tuple[dict[str, Any], ...] = (
            {"return_token_ids": True, "logprobs": NUM_TOP},
            {"logprobs": NUM_TOP},
            {"return_token_ids": True},
            {},
        )
        first: ConfigError | None = None
        for reported in wanted:
            body = {"prompt": prompt, "max_tokens": 2, "temperature": 1.0, "n": 2, **self.fields, **reported}
            for many in (body, {**body, "n": 1}):
                try:
                    reply = await self.endpoint.complete(many)
                except RefusedError as error:
                    first = first or error
                    continue
                self.reported = {
                    key: value for key, value in reported.items() if _is_reported(key, reply.answers[0])
                }
                self.most_samples = MOST_SAMPLES if len(reply.answers) > 1 else 1
                return
        assert first is not None
        raise ConfigError(f"{first}; asked {self.name}")

    async def ask(
        self, prompts: Sequence[Prompt], body: Mapping[str, Any], *, num_samples: int, width: int, tick: Tick
    ) -> list[list[Reply]]:
        """Return the replies to every prompt; the answers of a prompt's replies are its samples.

        Args:
            prompts: in order.
            body: fields of all requests.
            num_samples: of each prompt.
            width: maximum concurrent requests; 1 sends one after another.
            tick: called with the number of samples as they arrive.

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
        """Add draft counts from `/metrics`, or else from the responses."""
        if before is not None and after is not None:
            self.drafting = (self.drafting or Drafting(0, 0, 0)) + (after - before)
            return
        for row in replies:
            for reply in row:
                if reply.drafting is not None:
                    self.drafting = (self.drafting or Drafting(0, 0, 0)) + reply.drafting


def _is_reported(field_name: str, answer: Answer) -> bool:
    """Return whether an answer contains a requested field."""
    if field_name == "logprobs":
        return answer.places is not None
    return answer.tokens is not None and all(isinstance(token, int) for token in answer.tokens)


def _sizes(num_samples: int, most: int) -> list[int]:
    whole, rest = divmod(num_samples, most)
    return [most] * whole + [rest] * (rest > 0)
