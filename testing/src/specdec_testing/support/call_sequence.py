"""Sequences of calls for one request ("sequences_of_calls"), and running several of them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specdec.interfaces import FinishReason
from specdec_testing.support.feed import Ask, Feed
from specdec_testing.support.rows import Row

NUM_PROMPT_TOKENS = 40

CallSequence = Sequence[Ask | FinishReason | None]
"""One entry per call: an `Ask`, a reason to finish the request before the call, or None if it is not in the batch."""


def call_sequence(k: int) -> list[Ask]:
    """Return the calls of a request: a prompt in two chunks, then steps of every kind.

    Caps change from step to step. Drafts are wanted after zero, one and several new tokens, and some tokens are delivered
    while no draft is wanted.
    """
    return [
        Ask(24, 0, num_ahead=NUM_PROMPT_TOKENS - 24),
        Ask(NUM_PROMPT_TOKENS - 24, k),
        Ask(1, k),
        Ask(3, 1),
        Ask(2, 0),
        Ask(1, min(2, k)),
        Ask(0, k),
        Ask(4, k),
        Ask(2, max(1, k - 1)),
        Ask(1, k),
    ]


def play(
    feed: Feed, sequences_of_calls: Mapping[str, CallSequence], *, is_reversed: bool = False
) -> dict[str, list[Row | None]]:
    """Run sequences_of_calls together and return the drafts of each call, by request.

    Args:
        feed: the feed that holds the requests.
        sequences_of_calls: one per request; they may differ in length.
        is_reversed: whether every other batch has its rows in reverse order.
    """
    drafted: dict[str, list[Row | None]] = {name: [] for name in sequences_of_calls}
    for turn in range(max(map(len, sequences_of_calls.values()))):
        now = {name: told[turn] for name, told in sequences_of_calls.items() if turn < len(told)}
        for reason in FinishReason:
            ending = [name for name, event in now.items() if event is reason]
            if ending:
                feed.finish(ending, reason)
        asks = {name: event for name, event in now.items() if isinstance(event, Ask)}
        if is_reversed and turn % 2:
            asks = dict(reversed(asks.items()))
        rows = feed.call(asks)
        for name in now:
            drafted[name].append(rows.get(name))
    return drafted
