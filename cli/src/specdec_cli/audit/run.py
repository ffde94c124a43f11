"""Runs a complete audit."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import UTC, datetime
from importlib.metadata import version

import httpx2

from specdec_cli.audit.drafting import Drafting
from specdec_cli.audit.endpoint import Endpoint
from specdec_cli.audit.greedy import ask_greedy
from specdec_cli.audit.plan import Plan
from specdec_cli.audit.report import Report, SideReport
from specdec_cli.audit.sampled import ask_sampled
from specdec_cli.audit.side import Side, Tick


async def audit(plan: Plan, tick: Tick) -> Report:
    """Run an audit and return its report.

    Args:
        plan: of the audit.
        tick: called with the number of answers as they arrive.

    Raises:
        ConfigError: if a server cannot be reached or stops answering.
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
        # Answers can be compared only if both sides return the same fields.
        reported = {key: value for key, value in with_drafts.reported.items() if key in without.reported}
        with_drafts.reported = without.reported = reported
        greedy = await ask_greedy(without, with_drafts, plan, tick)
        drafted = [_taken(side) for side in (with_drafts, without)]
        sampled = await ask_sampled(without, with_drafts, plan, tick) if plan.temperature else None
        drafting, plain = (
            SideReport(side.name, side.endpoint.url, side.endpoint.model, side.fields, before, _taken(side))
            for side, before in zip((with_drafts, without), drafted, strict=True)
        )
    return Report(
        plan.command,
        datetime.now(UTC).isoformat(timespec="seconds"),
        version("specdec-cli"),
        plain,
        drafting,
        greedy,
        sampled,
        plan.is_drafting_assumed,
    )


def _taken(side: Side) -> Drafting | None:
    """Return and reset a side's draft counts."""
    found, side.drafting = side.drafting, None
    return found
