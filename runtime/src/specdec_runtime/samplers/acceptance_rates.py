"""Acceptance rates by position, from a mean length or a mean rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise


def rates_of_length(length: float, num_speculative_tokens: int) -> tuple[float, ...]:
    """Return rates that give the mean acceptance length `length` with the least variance.

    The first `floor(length - 1)` tokens are always accepted; the next one with the remaining fraction as probability.

    Args:
        length: mean acceptance length, bonus token included, in `[1, num_speculative_tokens + 1]`.
        num_speculative_tokens: number of rates.
    """
    if not 1.0 <= length <= num_speculative_tokens + 1:
        raise ValueError(f"must lie in [1, {num_speculative_tokens + 1}], got {length}")
    whole = math.floor(length - 1.0)
    rates = [1.0] * whole + [length - 1.0 - whole] + [0.0] * num_speculative_tokens
    return tuple(rates[:num_speculative_tokens])


def rates_of_mean(rate: float, num_speculative_tokens: int) -> tuple[float, ...]:
    """Return geometrically falling rates `c, c^2, ...` whose mean over the positions is `rate`.

    Args:
        rate: share of all drafted tokens that are accepted, in `[0, 1]`.
        num_speculative_tokens: number of rates.
    """
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if sum(middle**j for j in range(1, num_speculative_tokens + 1)) < rate * num_speculative_tokens:
            low = middle
        else:
            high = middle
    base = high if rate > 0.0 else 0.0
    return tuple(base**j for j in range(1, num_speculative_tokens + 1))


def check_rates(rates: Sequence[float], num_speculative_tokens: int | None) -> None:
    """Raise unless the rates are in [0, 1] and never rise, with one rate per drafted token where their number is known.

    Raises:
        ValueError: saying what is wrong.
    """
    if any(not 0.0 <= rate <= 1.0 for rate in rates):
        raise ValueError("every rate must lie in [0, 1]")
    if any(later > earlier for earlier, later in pairwise(rates)):
        raise ValueError("rates must not rise: a token is accepted only where all before it are")
    if num_speculative_tokens is not None and len(rates) != num_speculative_tokens:
        raise ValueError(f"needs one rate for each of {num_speculative_tokens} tokens, got {len(rates)}")
