"""A whole audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import httpx2

from specdec import ConfigError
from specdec_server.audit.drafting import Drafting
from specdec_server.audit.endpoint import Endpoint
from specdec_server.audit.greedy import ask_greedy
from specdec_server.audit.prompts import Prompt
from specdec_server.audit.report import Report, SideReport
from specdec_server.audit.sampled import ask_sampled
from specdec_server.audit.side import Side, Tick

NUM_GREEDY_RUNS = 5
"""How often each prompt is asked at temperature 0."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to ask whom.

    Raises:
        ConfigError: for a number that cannot be.
    """

    url: str
    reference: str | None
    """A server without speculation; None asks the first one with the fields `off`."""
    model: str | None
    reference_model: str | None
    api_key: str | None
    off: Mapping[str, Any]
    """Fields of requests that turn speculation off."""
    prompts: Sequence[Prompt]
    max_tokens: int
    temperature: float
    """Of samples; 0 leaves them out."""
    sampling: Mapping[str, Any]
    """Further sampling parameters of samples."""
    num_sampled_prompts: int
    num_samples: int
    num_tokens: int
    concurrency: int
    false_alarm_rate: float
    tolerance: float | None
    timeout_s: float
    is_drafting_assumed: bool
    command: str

    def __post_init__(self) -> None:
        least = {
            "--max-tokens": self.max_tokens,
            "--samples": self.num_samples,
            "--sample-tokens": self.num_tokens,
        }
        least |= {"--sampled-prompts": self.num_sampled_prompts, "--concurrency": self.concurrency}
        for name, value in least.items():
            if value < 1:
                raise ConfigError(f"{name} {value} is below 1")
        if not 0 < self.false_alarm_rate < 1:
            raise ConfigError(f"--false-alarm-rate {self.false_alarm_rate:g} is not between 0 and 1")
        if self.temperature < 0 or self.timeout_s <= 0:
            raise ConfigError("--temperature and --timeout cannot be negative")

    @property
    def sampled_prompts(self) -> Sequence[Prompt]:
        """The prompts that are sampled."""
        return self.prompts[: self.num_sampled_prompts]

    @property
    def num_answers(self) -> int:
        """How many samples are asked for in all."""
        sampled = 2 * len(self.sampled_prompts) * self.num_samples if self.temperature else 0
        return NUM_GREEDY_RUNS * len(self.prompts) + sampled


async def audit(plan: Plan, tick: Tick) -> Report:
    """Ask, and return what came of it.

    Args:
        plan: what to ask whom.
        tick: is told of answers as they come.

    Raises:
        ConfigError: if a server cannot be asked, or stops answering.
    """
    headers = {} if plan.api_key is None else {"Authorization": f"Bearer {plan.api_key}"}
    limits = httpx2.Limits(max_connections=plan.concurrency + 4)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            httpx2.AsyncClient(headers=headers, timeout=plan.timeout_s, limits=limits, trust_env=False)
        )
        with_drafts = Side("with speculation", Endpoint(client, plan.url, plan.model), {})
        if plan.reference is None:
            without = Side("without speculation", with_drafts.endpoint, plan.off)
        else:
            name = plan.reference_model
            without = Side("without speculation", Endpoint(client, plan.reference, name), {})
        for side in (with_drafts, without):
            await side.endpoint.connect()
            await side.probe(plan.prompts[0])
        # Answers can be compared only if both sides tell the same of them.
        told = {key: value for key, value in with_drafts.told.items() if key in without.told}
        with_drafts.told = without.told = told
        greedy = await ask_greedy(
            without,
            with_drafts,
            plan.prompts,
            max_tokens=plan.max_tokens,
            width=plan.concurrency,
            tolerance=plan.tolerance,
            tick=tick,
        )
        drafted = [_taken(side) for side in (with_drafts, without)]
        sampled = None
        if plan.temperature:
            sampled = await ask_sampled(
                without,
                with_drafts,
                plan.sampled_prompts,
                temperature=plan.temperature,
                fields=plan.sampling,
                num_samples=plan.num_samples,
                num_tokens=plan.num_tokens,
                width=plan.concurrency,
                false_alarm_rate=plan.false_alarm_rate,
                tick=tick,
            )
        drafting, plain = (
            SideReport(side.name, side.endpoint.url, side.endpoint.model, side.fields, before, _taken(side))
            for side, before in zip((with_drafts, without), drafted, strict=True)
        )
    return Report(
        plan.command,
        datetime.now(UTC).isoformat(timespec="seconds"),
        version("specdec-server"),
        plain,
        drafting,
        greedy,
        sampled,
        plan.is_drafting_assumed,
    )


def _taken(side: Side) -> Drafting | None:
    """Return what a side has drafted since this was last asked."""
    found, side.drafting = side.drafting, None
    return found
