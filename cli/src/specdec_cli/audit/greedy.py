"""Temperature 0: compares tokens with and without speculation, with single and with concurrent requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdec_cli.audit.answer import Answer
from specdec_cli.audit.divergence import Divergence, Kind, first_divergence, gap_noise, tolerance_of
from specdec_cli.audit.plan import Plan
from specdec_cli.audit.side import Side, Tick

AGAIN = "without, asked twice"
BATCHED = "without, alone and among others"
ALONE = "with and without, alone"
TOGETHER = "with and without, among others"
SPECULATIVE_BATCH = "with, alone and among others"


@dataclass(frozen=True)
class Comparison:
    """Two runs over the same prompts."""

    name: str
    num_equal: int
    divergences: tuple[Divergence, ...]

    def count(self, kind: Kind, tolerance: float) -> int:
        """Return how many divergences are of a kind."""
        return sum(found.kind(tolerance) is kind for found in self.divergences)


@dataclass(frozen=True)
class GreedyResult:
    """Result of the comparisons at temperature 0."""

    num_prompts: int
    num_tokens: int
    """Tokens of all answers without speculation."""
    max_tokens: int
    tolerance: float
    """Gap in nats up to which a divergence is a near-tie."""
    comparisons: tuple[Comparison, ...]

    def named(self, name: str) -> Comparison:
        """Return the comparison of a name."""
        return next(found for found in self.comparisons if found.name == name)

    def num_wrong(self, *names: str) -> int:
        """Return how many divergences in the named comparisons are wrong tokens."""
        return sum(self.named(name).count(Kind.WRONG_TOKEN, self.tolerance) for name in names)

    @property
    def num_unknown(self) -> int:
        """How many divergences between with and without speculation cannot be distinguished from near-ties."""
        return sum(self.named(name).count(Kind.UNKNOWN, self.tolerance) for name in (ALONE, TOGETHER))


async def ask_greedy(without: Side, with_drafts: Side, plan: Plan, tick: Tick) -> GreedyResult:
    """Send all prompts at temperature 0: three times without speculation, twice with it.

    Args:
        without: the side without drafts.
        with_drafts: the side with drafts.
        plan: of the audit.
        tick: called with the number of answers as they arrive.

    Raises:
        ConfigError: if a server does not answer.
    """

    async def run(side: Side, at_once: int) -> list[Answer]:
        body = {"max_tokens": plan.max_tokens, "temperature": 0, **side.reported}
        replies = await side.ask(plan.prompts, body, num_samples=1, width=at_once, tick=tick)
        return [row[0].answers[0] for row in replies]

    expected, again, batched = (
        await run(without, 1),
        await run(without, 1),
        await run(without, plan.concurrency),
    )
    alone, together = await run(with_drafts, 1), await run(with_drafts, plan.concurrency)
    pairs = {
        AGAIN: (expected, again),
        BATCHED: (expected, batched),
        ALONE: (expected, alone),
        TOGETHER: (batched, together),
        SPECULATIVE_BATCH: (alone, together),
    }
    noise = [
        difference
        for left, right in pairs.values()
        for a, b in zip(left, right, strict=True)
        for difference in gap_noise(a, b)
    ]
    return GreedyResult(
        len(plan.prompts),
        sum(len(answer.symbols) for answer in expected),
        plan.max_tokens,
        tolerance_of(noise) if plan.tolerance is None else plan.tolerance,
        tuple(_compared(name, *pair) for name, pair in pairs.items()),
    )


def _compared(name: str, expected: Sequence[Answer], got: Sequence[Answer]) -> Comparison:
    found = [first_divergence(index, a, b) for index, (a, b) in enumerate(zip(expected, got, strict=True))]
    return Comparison(name, found.count(None), tuple(entry for entry in found if entry is not None))
