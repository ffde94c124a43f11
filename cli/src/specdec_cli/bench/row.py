"""One row of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from specdec_cli.bench.contender import Contender
from specdec_cli.bench.speedup import Bounded, speedup_by_rounds
from specdec_cli.bench.statistics import distinct_ratio
from specdec_cli.bench.step_time import drafted_share, median_times, tokens_per_step
from specdec_cli.bench.turn import Turn


def make_row(
    contender: Contender,
    turns: Sequence[Turn],
    baseline: Sequence[Turn],
    *,
    num_prompts: int,
    batch_size: int,
    speedup: Bounded | None = None,
) -> dict[str, Any]:
    """Return a contender's results over all rounds.

    `output_tokens` and `wall_s` are those of one pass over the prompts; `wall_s` is the median over rounds.
    Step times are medians over all steps. `speedup` compares the time per generated token with the baseline's
    turn of the same round, so it is valid even if the texts differ in length.

    Args:
        contender: the contender.
        turns: the contender's turns, one per round.
        baseline: the baseline's turns in the same rounds.
        num_prompts: prompts per turn; for a suite, questions.
        batch_size: requests in flight.
        speedup: speed-up with its bounds; None to compute it by rounds.
    """
    value, low, high = speedup_by_rounds(turns, baseline) if speedup is None else speedup
    outputs = [output for turn in turns for output in turn.outputs]
    wall_s = median(turn.wall_s for turn in turns)
    firsts = [output.metrics.time_to_first_token or 0.0 for output in outputs]
    return {
        "name": contender.name,
        "method": contender.method,
        "config": contender.config,
        "num_prompts": num_prompts,
        "batch_size": batch_size,
        "output_tokens": turns[0].num_tokens,
        "wall_s": wall_s,
        "tokens_per_s": turns[0].num_tokens / wall_s,
        "speedup": value,
        "speedup_low": low,
        "speedup_high": high,
        **_acceptance(turns),
        **median_times([step for turn in turns for step in turn.steps]),
        "ttft_ms": 1e3 * median(firsts),
        "peak_memory_mb": max(turn.peak_memory_mb for turn in turns),
        "identical_to_baseline": all(
            turn.token_ids == base.token_ids for turn, base in zip(turns, baseline, strict=True)
        ),
        "distinct_4gram_ratio": distinct_ratio(turns[0].token_ids),
    }


def more_columns(row: Mapping[str, Any], turns: Sequence[Turn]) -> dict[str, Any]:
    """Return the additional columns of tables and pages, which rows of suites have too.

    `eta` is the speed-up divided by the mean acceptance length. `drafted_share` is the share of steps in which a
    draft was verified. `tokens_per_step` includes steps without a draft, which the acceptance length excludes.

    Args:
        row: the contender's row.
        turns: the turns the row was made from.
    """
    steps = [step for turn in turns for step in turn.steps]
    return {
        "eta": row["speedup"] / row["mean_acceptance_length"],
        "drafted_share": drafted_share(steps),
        "tokens_per_step": tokens_per_step(steps),
        "num_drafts": sum(output.metrics.num_drafts for turn in turns for output in turn.outputs),
        "num_proposer_errors": sum(turn.num_proposer_errors for turn in turns),
    }


def _acceptance(turns: Sequence[Turn]) -> dict[str, Any]:
    """Return acceptance over all rounds; without drafts the length is 1 and the rate 0."""
    metrics = [output.metrics for turn in turns for output in turn.outputs]
    num_drafts = sum(m.num_drafts for m in metrics)
    num_drafted = sum(m.num_draft_tokens for m in metrics)
    num_accepted = sum(m.num_accepted_tokens for m in metrics)
    width = max((len(m.accepted_per_position) for m in metrics), default=0)
    positions = [
        sum(m.accepted_per_position[i] for m in metrics if i < len(m.accepted_per_position))
        for i in range(width)
    ]
    return {
        "mean_acceptance_length": 1.0 + num_accepted / num_drafts if num_drafts else 1.0,
        "acceptance_rate": num_accepted / num_drafted if num_drafted else 0.0,
        "acceptance_per_position": [count / num_drafts for count in positions],
    }
