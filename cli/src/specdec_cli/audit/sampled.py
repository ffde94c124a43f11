"""Temperature above 0: compares token distributions with and without speculation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from specdec import ConfigError
from specdec_cli.audit.answer import END, Answer, Token
from specdec_cli.audit.chi_square import NOTHING, Homogeneity, detectable_variation, homogeneity
from specdec_cli.audit.plan import Plan
from specdec_cli.audit.side import Side, Tick

FALSE_ALARM_RATE = 0.001
Samples = Sequence[Sequence[Sequence[Token]]]
"""For each prompt its samples, each of equally many symbols."""


@dataclass(frozen=True)
class Position:
    """Statistics of one position of the answers, over all prompts."""

    place: int
    statistic: float
    num_freedom: int
    p_value: float
    variation: float
    """Total variation between the samples, mean over prompts; includes sampling noise."""
    detectable: float
    """The mean total variation that would have been found with probability 0.95."""


@dataclass(frozen=True)
class SampledResult:
    """Result of the comparison of samples."""

    temperature: float
    fields: Mapping[str, Any]
    """Further sampling parameters of all requests."""
    num_prompts: int
    num_samples: int
    """Samples per prompt and side."""
    false_alarm_rate: float
    """Probability of calling equal distributions different."""
    positions: tuple[Position, ...]

    @property
    def p_value(self) -> float:
        """The smallest p-value, corrected for the number of positions."""
        return min(1.0, len(self.positions) * min(position.p_value for position in self.positions))

    @property
    def is_equal(self) -> bool:
        """Whether the test does not reject equal distributions."""
        return self.p_value >= self.false_alarm_rate

    @property
    def detectable(self) -> float:
        """The total variation that would have been found with probability 0.95 at any position after the first."""
        return max(position.detectable for position in self.positions[1:] or self.positions)


async def ask_sampled(without: Side, with_drafts: Side, plan: Plan, tick: Tick) -> SampledResult:
    """Request samples of all prompts and compare the tokens at each position.

    Args:
        without: the side without drafts.
        with_drafts: the side with drafts.
        plan: of the audit.
        tick: called with the number of samples as they arrive.

    Raises:
        ConfigError: if a server does not answer or returns no tokens.
    """

    async def run(side: Side) -> list[list[tuple[Token, ...]]]:
        body = {
            "max_tokens": plan.num_tokens,
            "temperature": plan.temperature,
            **plan.sampling,
            **side.reported,
        }
        replies = await side.ask(
            plan.sampled_prompts, body, num_samples=plan.num_samples, width=plan.concurrency, tick=tick
        )
        return [
            [filled(answer, plan.num_tokens, side) for reply in row for answer in reply.answers]
            for row in replies
        ]

    expected, got = await run(without), await run(with_drafts)
    return compare_samples(
        expected,
        got,
        temperature=plan.temperature,
        fields=plan.sampling,
        false_alarm_rate=plan.false_alarm_rate,
    )


def compare_samples(
    expected: Samples,
    got: Samples,
    *,
    temperature: float,
    fields: Mapping[str, Any] = MappingProxyType({}),
    false_alarm_rate: float = FALSE_ALARM_RATE,
) -> SampledResult:
    """Compare the tokens at each position of samples, over all prompts.

    Args:
        expected: for each prompt its samples, equally many and equally long.
        got: the same of the other side.
        temperature: of all samples.
        fields: further sampling parameters of all requests.
        false_alarm_rate: probability of calling equal distributions different.
    """
    num_samples, num_tokens = len(expected[0]), len(expected[0][0])
    level = false_alarm_rate / num_tokens
    positions = []
    for place in range(num_tokens):
        columns = [([s[place] for s in a], [s[place] for s in b]) for a, b in zip(expected, got, strict=True)]
        total: Homogeneity = sum((homogeneity(a, b) for a, b in columns), NOTHING)
        positions.append(
            Position(
                place,
                total.statistic,
                total.num_freedom,
                total.p_value,
                total.variation / len(columns),
                detectable_variation(total.num_freedom, num_samples * len(columns), level),
            )
        )
    return SampledResult(temperature, fields, len(expected), num_samples, false_alarm_rate, tuple(positions))


def filled(answer: Answer, length: int, side: Side) -> tuple[Token, ...]:
    """Return exactly `length` symbols, padded with `END` after the end of a text."""
    if answer.tokens is None:
        raise ConfigError(
            f"{side.endpoint.url} returns neither token ids nor log probabilities, so distributions cannot be compared: serve "
            "the model with logprobs, or leave samples out with --temperature 0"
        )
    return (*answer.tokens[:length], *[END] * (length - len(answer.tokens)))
