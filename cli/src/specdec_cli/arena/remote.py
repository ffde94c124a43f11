"""Contestants on servers, in turns with a server of the same model without speculation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import httpx2

from specdec import ConfigError
from specdec_cli.arena.plan import SAMPLE_TOKENS, SAMPLED_PROMPTS, STAMP_TOKENS, STAMP_WIDTH, Plan
from specdec_cli.arena.row import Row, StampRow, Step, sha256_of
from specdec_cli.arena.submission import PLAIN, Contestant
from specdec_cli.audit.drafting import Drafting, read_reply
from specdec_cli.audit.endpoint import Endpoint, RefusedError
from specdec_cli.audit.prompts import BUILT_IN
from specdec_cli.audit.sampled import filled
from specdec_cli.audit.side import NUM_TOP, Side
from specdec_cli.bench.suites import grouped
from specdec_cli.bench.suites.group import Group
from specdec_cli.bench.suites.question import Question


@dataclass
class Server:
    """A contestant: a side as audits ask it, which streams conversations too."""

    name: str
    side: Side
    plan: Plan
    told: dict[str, Any] = field(default_factory=dict)
    """Fields that ask for ids, if the server takes them."""

    async def probe(self) -> None:
        """Find out what the server tells, and warm it up.

        Raises:
            ConfigError: if it does not answer.
        """
        await self.side.endpoint.connect()
        await self.side.probe(BUILT_IN[0])
        for told in ({"return_token_ids": True}, {}):
            body = {**self._body([{"role": "user", "content": "Hello"}], 0), **told, "max_tokens": 2}
            try:
                async for _ in self.side.endpoint.chat(body):
                    self.told = told
            except RefusedError:
                if not told:
                    raise
            else:
                return

    def contestant(self) -> Contestant:
        """Return what a submission tells of it."""
        kind = "none" if self.name == PLAIN else "real"
        endpoint = self.side.endpoint
        return Contestant.model_validate(
            {"name": self.name, "acceptance": kind, "url": endpoint.url, "fields": dict(self.side.fields)}
        )

    async def take_turn(self, group: Group, number: int, size: int, zero: float) -> list[Row]:
        """Ask the questions of a group, `size` at a time."""
        places = asyncio.Semaphore(size)

        async def one(question: Question) -> list[Row]:
            async with places:
                return await self._converse(question, number, size, zero)

        return [row for rows in await asyncio.gather(*map(one, group.questions)) for row in rows]

    async def stamp_rows(self, tick: Callable[[], None]) -> list[StampRow]:
        """Ask the prompts of the stamp: at temperature 0 one after another, then for samples."""
        plan, side = self.plan, self.side
        greedy = {"logprobs": NUM_TOP} if "logprobs" in side.reported else side.reported
        sampled = BUILT_IN[:SAMPLED_PROMPTS] if plan.stamp_samples else ()
        rows = []
        for prompts, temperature, most, fields, count, width in (
            (BUILT_IN, 0.0, STAMP_TOKENS, greedy, 1, 1),
            (sampled, plan.stamp_temperature, SAMPLE_TOKENS, side.reported, plan.stamp_samples, STAMP_WIDTH),
        ):
            body = {"max_tokens": most, "temperature": temperature, **fields}
            found = await side.ask(prompts, body, num_samples=count, width=width, tick=lambda _: None)
            drafted = self._drafted()
            for place, replies in enumerate(found):
                answers = [answer for reply in replies for answer in reply.answers]
                tops = answers[0].places if self.name == PLAIN and not temperature else None
                symbols = [filled(a, most, side) if temperature else a.symbols for a in answers]
                rows.append(
                    StampRow(
                        contestant=self.name,
                        prompt=place,
                        prompt_sha256=sha256_of(prompts[place]),
                        temperature=temperature,
                        answers=[list(each) for each in symbols],
                        places=None if tops is None else [dict(one.top) for one in tops],
                        drafted=None if place else drafted,
                    )
                )
        tick()
        return rows

    def _drafted(self) -> int | None:
        """Return and reset how many tokens were drafted, over all prompts."""
        found, self.side.drafting = self.side.drafting, None
        return None if found is None else found.num_draft_tokens

    def _body(self, messages: list[dict[str, str]], number: int) -> dict[str, Any]:
        return {
            "messages": messages,
            "max_tokens": self.plan.max_tokens,
            "temperature": self.plan.temperature,
            "seed": self.plan.seed + number,
            "stream_options": {"include_usage": True},
            **self.told,
            **self.side.fields,
        }

    async def _converse(self, question: Question, number: int, size: int, zero: float) -> list[Row]:
        messages: list[dict[str, str]] = []
        rows: list[Row] = []
        for turn, said in enumerate(question.turns):
            messages.append({"role": "user", "content": said})
            started = perf_counter()
            answer = _Stream(started)
            async for event in self.side.endpoint.chat(self._body(messages, question.number)):
                answer.take(event, perf_counter())
            rows.append(
                Row(
                    contestant=self.name,
                    batch_size=size,
                    group=number,
                    question=question.number,
                    turn=turn,
                    category=question.category,
                    prompt_sha256=sha256_of(messages),
                    start=round(started - zero, 6),
                    steps=answer.steps(),
                    tokens=answer.ids,
                    text=answer.text,
                    finish=answer.finish,
                    drafting=answer.drafting,
                    num_steps=answer.num_steps,
                )
            )
            messages.append({"role": "assistant", "content": answer.text})
        return rows


class _Stream:
    """What the events of one answer tell.

    Args:
        started: when it was asked, in seconds of `perf_counter`.
    """

    def __init__(self, started: float) -> None:
        self.text = ""
        self.ids: list[int] | None = None
        self.finish = ""
        self.drafting: tuple[int | None, int, int] | None = None
        self.num_steps: int | None = None
        self._started = started
        self._steps: list[tuple[float, int]] = []
        self._total: int | None = None

    def take(self, event: dict[str, Any], now: float) -> None:
        """Take an event; one with text but without ids counts as one token, until the usage tells better."""
        for choice in event.get("choices") or ():
            delta = choice.get("delta") or {}
            text = delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning") or ""
            ids = choice.get("token_ids")
            if ids is not None:
                self.ids = [*(self.ids or ()), *ids]
            count = len(ids) if ids is not None else int(bool(text))
            if count:
                self._steps.append((round(now - self._started, 6), count))
            self.text += text
            self.finish = choice.get("finish_reason") or self.finish
        self._total = (event.get("usage") or {}).get("completion_tokens", self._total)
        found: Drafting | None = read_reply(event)
        if found is not None:
            self.drafting = (found.num_drafts, found.num_draft_tokens, found.num_accepted_tokens)
            stats = (event.get("metrics") or {}).get("speculative_decoding") or {}
            self.num_steps = stats.get("num_steps") or None

    def steps(self) -> list[Step]:
        """Return times and tokens; tokens that only the usage tells came with the last."""
        if self.ids is not None or self._total is None or not self._steps:
            return list(self._steps)
        missing = self._total - sum(count for _, count in self._steps)
        last, count = self._steps[-1]
        return [*self._steps[:-1], (last, max(0, count + missing))]


@asynccontextmanager
async def servers(plan: Plan) -> AsyncIterator[list[Server]]:
    """Connect to the contestants, plain decoding first where there is any.

    Raises:
        ConfigError: if one does not answer, or they serve different models.
    """
    headers = {} if plan.api_key is None else {"Authorization": f"Bearer {plan.api_key}"}
    limits = httpx2.Limits(max_connections=max(plan.batch_size) + 4)
    async with httpx2.AsyncClient(
        headers=headers, timeout=plan.timeout, limits=limits, trust_env=False
    ) as client:

        def server(name: str, url: str, fields: dict[str, Any]) -> Server:
            return Server(name, Side(name, Endpoint(client, url, plan.served_model), fields), plan)

        found = [server(url, url, {}) for url in plan.url]
        if plan.plain_url is not None or plan.off:
            fields = {} if plan.plain_url is not None else dict(plan.off)
            found.insert(0, server(PLAIN, plan.plain_url or plan.url[0], fields))
        for one in found:
            await one.probe()
        names = {one.side.endpoint.model: one.side.endpoint.url for one in found}
        if len(names) > 1:
            served = ", ".join(f"{url} serves {name!r}" for name, url in names.items())
            raise ConfigError(f"mixed targets: {served}; give servers of one model, by one --served-model")
        told = [one.side.reported for one in found]
        for one in found:  # answers are compared only by what all of them tell
            one.side.reported = {key: told[0][key] for key in told[0] if all(key in each for each in told)}
        yield found


async def rows_of_servers(found: Sequence[Server], plan: Plan, tick: Callable[[], None]) -> list[Row]:
    """Ask everybody every question, at each batch size, in turns."""
    rows: list[Row] = []
    zero = perf_counter()
    for size in plan.batch_size:
        for number, group in enumerate(grouped(plan.questions_of_suite, plan.questions, size)):
            first = number % len(found)
            for one in [*found[first:], *found[:first]]:
                rows += await one.take_turn(group, number, size, zero)
                for _ in group.questions:
                    tick()
    return rows
