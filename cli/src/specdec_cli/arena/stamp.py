"""The stamp of losslessness: what the answers of a contestant and of plain decoding to the same prompts say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdec_cli.arena.row import StampRow, Symbol
from specdec_cli.arena.submission import PLAIN, Contestant
from specdec_cli.audit.answer import END, Answer, TokenLogprobs
from specdec_cli.audit.divergence import (
    LEAST_TOLERANCE,
    MOST_TOLERANCE,
    Divergence,
    Kind,
    first_divergence,
)
from specdec_cli.audit.sampled import compare_samples

LOSSLESS, NOT_LOSSLESS, UNDECIDED = "lossless", "not lossless", "undecided"
MOST_DETECTABLE = 0.5
"""Total variation that must be found with probability 0.95, for a stamp of samples."""


def stamps(rows: Sequence[StampRow], contestants: Sequence[Contestant]) -> dict[str, dict[str, Any]]:
    """Return the stamp of each contestant that drafts: the evidence, and what follows from it.

    At temperature 0 a divergence is a near-tie up to 0.001 nats. On a server, whose precision is unknown, gaps up to 0.5
    leave the verdict open. Above 0 a chi-square test over prompts compares each position. Synthetic acceptance has no stamp.
    """
    plain = [row for row in rows if row.contestant == PLAIN]
    return {
        contestant.name: _stamp([row for row in rows if row.contestant == contestant.name], plain, contestant)
        for contestant in contestants
        if contestant.acceptance == "real"
    }


def _stamp(rows: Sequence[StampRow], plain: Sequence[StampRow], contestant: Contestant) -> dict[str, Any]:
    if not rows or not plain:
        return {"verdict": UNDECIDED, "why": "there is no plain decoding beside it"}
    greedy, sampled = _greedy(rows, plain), _sampled(rows, plain)
    wrong = [found for found in greedy.pop("found") if found.kind(LEAST_TOLERANCE) is not Kind.NEAR_TIE]
    open_kinds = [found.kind(MOST_TOLERANCE) is not Kind.WRONG_TOKEN for found in wrong]
    verdict, why = LOSSLESS, ""
    if wrong and not (contestant.url is not None and all(open_kinds)):
        verdict, why = NOT_LOSSLESS, "tokens at temperature 0 differ by more than rounding"
    elif sampled is not None and sampled["p_value"] < sampled["false_alarm_rate"]:
        verdict, why = NOT_LOSSLESS, "the distributions differ"
    elif wrong:
        verdict, why = UNDECIDED, "tokens at temperature 0 differ where rounding in 16 bits may be the reason"
    elif greedy["drafted"] == 0 or (sampled is not None and sampled["drafted"] == 0):
        verdict, why = UNDECIDED, "nothing was drafted"
    elif greedy["drafted"] is None:
        verdict, why = UNDECIDED, "the server does not tell whether it drafts"
    elif sampled is None:
        why = "temperature 0 alone"
    elif sampled["detectable"] > MOST_DETECTABLE:
        verdict, why = UNDECIDED, "the samples are too few to find a difference"
    return {"verdict": verdict, "why": why, "greedy": greedy, "sampled": sampled}


def _greedy(rows: Sequence[StampRow], plain: Sequence[StampRow]) -> dict[str, Any]:
    got, expected = ({row.prompt: row for row in side if not row.temperature} for side in (rows, plain))
    pairs = [(prompt, row, expected[prompt]) for prompt, row in got.items() if prompt in expected]
    every = [first_divergence(prompt, answer_of(base), answer_of(row)) for prompt, row, base in pairs]
    found = [divergence for divergence in every if divergence is not None]
    return {
        "prompts": len(pairs),
        "tokens": sum(len(base.answers[0]) for _, _, base in pairs),
        "equal": every.count(None),
        "first": _shown(min(found, key=lambda one: (one.place, one.prompt))) if found else None,
        "drafted": _total([row for _, row, _ in pairs]),
        "found": found,
    }


def _shown(found: Divergence) -> dict[str, Any]:
    return {"prompt": found.prompt, "token": found.place, "gap_nats": found.gap, "at_least": found.is_least}


def _sampled(rows: Sequence[StampRow], plain: Sequence[StampRow]) -> dict[str, Any] | None:
    got, expected = ({row.prompt: row for row in side if row.temperature} for side in (rows, plain))
    both = [prompt for prompt in got if prompt in expected]
    if not both:
        return None
    sides = [[side[prompt].answers for prompt in both] for side in (expected, got)]
    result = compare_samples(*sides, temperature=got[both[0]].temperature)
    return {
        "prompts": result.num_prompts,
        "samples": result.num_samples,
        "temperature": result.temperature,
        "false_alarm_rate": result.false_alarm_rate,
        "p_value": result.p_value,
        "detectable": result.detectable,
        "drafted": _total([got[prompt] for prompt in both]),
    }


def _total(rows: Sequence[StampRow]) -> int | None:
    counts = [row.drafted for row in rows if row.drafted is not None]
    return sum(counts) if counts else None


def answer_of(row: StampRow) -> Answer:
    """Return the first answer of a row as audits compare them."""
    tokens = tokens_of(row)
    places = None
    if row.places is not None:
        places = tuple(
            TokenLogprobs(str(token), top[str(token)], top)
            for token, top in zip(tokens, row.places, strict=True)
        )
    return Answer("", tokens, places, len(tokens) < len(row.answers[0]))


def tokens_of(row: StampRow) -> tuple[Symbol, ...]:
    """Return the tokens of the first answer of a row, without its end."""
    symbols = row.answers[0]
    return tuple(symbols[:-1] if symbols[-1:] == [END] else symbols)
