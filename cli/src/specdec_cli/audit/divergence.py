"""The first difference between two greedy answers to one prompt, and whether rounding explains it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from specdec_cli.audit.answer import END, Answer

LEAST_TOLERANCE, MOST_TOLERANCE = 1e-3, 0.5
"""Bounds in nats of the tolerance: smaller gaps are always near-ties, larger ones never."""
_TIMES = 4.0
_SHARE = 0.9


class Kind(StrEnum):
    """Kind of a divergence."""

    NEAR_TIE = "near-tie"
    """The two tokens were equally probable within rounding."""
    WRONG_TOKEN = "wrong token"
    UNKNOWN = "unknown"
    """There are no log probabilities to decide."""


@dataclass(frozen=True)
class Divergence:
    """The first position at which two answers differ."""

    prompt: int
    """Index of the prompt."""
    place: int
    """Index of the token in the answer, or of the character if the server returns no tokens."""
    expected: str
    got: str
    gap: float | None
    """Log probability of the expected token minus that of the other, in the first answer, in nats; None if unknown."""
    is_least: bool
    """Whether `gap` is only a lower bound, because the other token is not among the listed ones."""

    def kind(self, tolerance: float) -> Kind:
        """Return the kind, with gaps up to `tolerance` counted as rounding."""
        if self.gap is None or (self.is_least and self.gap <= tolerance):
            return Kind.UNKNOWN
        return Kind.NEAR_TIE if abs(self.gap) <= tolerance else Kind.WRONG_TOKEN


def first_divergence(prompt: int, expected: Answer, got: Answer) -> Divergence | None:
    """Return the first divergence of two answers; None if they are equal."""
    left, right = expected.symbols, got.symbols
    if left == right:
        return None
    place = next(
        (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
    )
    texts = expected.text_at(place), got.text_at(place)
    gap, is_least = _gap(expected, place, texts)
    return Divergence(prompt, place, *texts, gap, is_least)


def gap_noise(expected: Answer, got: Answer) -> list[float]:
    """Return the differences in nats of the gap between the two most probable tokens, before the first divergence."""
    found = []
    symbols = zip(expected.symbols, got.symbols, strict=False)
    places = zip(symbols, expected.places or (), got.places or (), strict=False)
    for (a, b), left, right in places:
        if a != b:
            break
        best = sorted(left.top, key=lambda text: -left.top[text])[:2]
        if len(best) == 2 and all(text in right.top for text in best):
            here, there = (side.top[best[0]] - side.top[best[1]] for side in (left, right))
            found.append(abs(here - there))
    return found


def tolerance_of(noise: Sequence[float]) -> float:
    """Return the largest gap of a near-tie: four times the 90th percentile of the differences, within bounds."""
    if not noise:
        return LEAST_TOLERANCE
    bulk = sorted(noise)[int(_SHARE * (len(noise) - 1))]
    return min(MOST_TOLERANCE, max(LEAST_TOLERANCE, _TIMES * bulk))


def _gap(expected: Answer, place: int, texts: tuple[str, str]) -> tuple[float | None, bool]:
    if expected.places is None or place >= len(expected.places) or END in texts:
        return None, False
    symbol = expected.places[place]
    if texts[1] in symbol.top and texts[0] != texts[1]:
        return symbol.logprob - symbol.top[texts[1]], False
    if len(symbol.top) < 2:
        return None, False
    return symbol.logprob - min(symbol.top.values()), True
