"""Speed-ups over the baseline, with their bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from specdec_cli.bench.statistics import CONFIDENCE, median_with_bounds
from specdec_cli.bench.turn import Turn

RESAMPLES = 2000
MIN_ROUNDS = 6
"""Fewer rounds cannot give bounds at 95 %."""

Bounded = tuple[float, float, float]
"""A speed-up, and its bounds."""


class Timed(Protocol):
    """Tokens, and the seconds that they took."""

    @property
    def wall_s(self) -> float:
        """Seconds."""
        ...

    @property
    def num_tokens(self) -> int:
        """Number of generated tokens."""
        ...


def speedup_by_rounds(turns: Sequence[Turn], baseline: Sequence[Turn]) -> Bounded:
    """Return the median over rounds of the ratio of seconds per token, and its bounds.

    Args:
        turns: the contender's turns, one per round.
        baseline: the baseline's turns in the same rounds.
    """
    return median_with_bounds(_ratios(turns, baseline))


def speedup_by_questions(turns: Sequence[Sequence[Timed]], baseline: Sequence[Sequence[Timed]]) -> Bounded:
    """Return the median over rounds of the ratio of seconds per token, with bounds from resampling the questions.

    The questions (or the groups of them that were measured together) are drawn with replacement 2,000 times, contender and
    baseline together, and the speed-up is recomputed each time. Its bounds are the percentiles 2.5 and 97.5 (bootstrap,
    Efron 1979). They show how much the speed-up depends on the choice of questions, including the machine's noise. For a
    single question both bounds equal the value. The same measurements give the same bounds.

    Args:
        turns: for each round the contender's turns, one per group of questions.
        baseline: the baseline's turns, for the same groups and rounds.
    """
    own_s, own_tokens = _totals(turns)
    base_s, base_tokens = _totals(baseline)
    num_groups = own_s.shape[1]
    drawn = np.random.default_rng(0).integers(num_groups, size=(RESAMPLES, num_groups))

    def speedup(choice: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        own = own_s[:, choice].sum(-1) / own_tokens[:, choice].sum(-1)
        base = base_s[:, choice].sum(-1) / base_tokens[:, choice].sum(-1)
        return np.asarray(np.median(base / own, axis=0), dtype=np.float64)

    value = float(speedup(np.arange(num_groups)[None, :])[0])
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(speedup(drawn), [tail, 100 - tail])
    return value, min(value, float(low)), max(value, float(high))


def _ratios(turns: Sequence[Turn], baseline: Sequence[Turn]) -> list[float]:
    return [
        base.seconds_per_token / turn.seconds_per_token for base, turn in zip(baseline, turns, strict=True)
    ]


def _totals(turns: Sequence[Sequence[Timed]]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return seconds and tokens, each `[rounds, groups]`."""
    seconds = [[turn.wall_s for turn in groups] for groups in turns]
    tokens = [[float(turn.num_tokens) for turn in groups] for groups in turns]
    return np.array(seconds), np.array(tokens)
