"""Runs the contestants and writes a submission."""

from __future__ import annotations

import asyncio
from pathlib import Path

from specdec_cli import progress
from specdec_cli.arena.plan import Plan
from specdec_cli.arena.row import Row, StampRow
from specdec_cli.arena.submission import Contestant, Files, Questions, write_submission
from specdec_cli.bench.environment import surroundings

SETTINGS = ("batch_size", "max_tokens", "temperature", "seed", "stamp_samples", "stamp_temperature")
"""Options that a submission tells, under their names."""


def run(plan: Plan, folder: Path, note: str) -> None:
    """Measure, and write the folder of a submission.

    Args:
        plan: of the run.
        folder: to write.
        note: how the servers were started, in the user's words.

    Raises:
        ConfigError: for a server, model or configuration that cannot be used.
    """
    contestants: list[Contestant]
    rows: list[Row]
    stamp_rows: list[StampRow]
    if plan.url:
        name, contestants, rows, stamp_rows = asyncio.run(_on_servers(plan))
        target, dtype, left_out, device = Files.of(name, plan.model), "as served", 0, "as served"
        target = target.model_copy(update={"name": name})
    else:
        from specdec_cli.arena.local import Local

        local = Local.of(plan)
        contestants = local.contestants()
        num = len(local.chats.by_number) * len(plan.batch_size) + 1
        with progress("arena", num * len(contestants)) as steps:
            rows = list(local.rows(steps.advance))
            stamp_rows = list(local.stamp_rows(steps.advance))
        target = Files.of(local.name, local.target.path)
        dtype, device = str(local.target.dtype).removeprefix("torch."), str(local.target.device)
        left_out = local.chats.num_left_out
    write_submission(
        folder,
        {
            "target": target,
            "dtype": dtype,
            "suite": Questions(
                name=plan.suite,
                sha256=Questions.sha256_of(plan.dataset),
                numbers=sorted({row.question for row in rows}),
                num_left_out=left_out,
            ),
            "contestants": contestants,
            **{name: getattr(plan, name) for name in SETTINGS},
            "environment": {**surroundings(), "device": device, "note": note},
        },
        rows,
        stamp_rows,
    )


async def _on_servers(plan: Plan) -> tuple[str, list[Contestant], list[Row], list[StampRow]]:
    from specdec_cli.arena.remote import rows_of_servers, servers

    async with servers(plan) as found:
        num = len(plan.questions) * len(plan.batch_size) + 1
        with progress("arena", num * len(found)) as steps:
            rows = await rows_of_servers(found, plan, steps.advance)
            stamp_rows = [row for one in found for row in await one.stamp_rows(steps.advance)]
        return found[0].side.endpoint.model, [one.contestant() for one in found], rows, stamp_rows
