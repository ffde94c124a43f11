"""What happens to one request, call by call, and several such stories at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specdec.interfaces import FinishReason
from specdec.testing.support.feed import Ask, Feed
from specdec.testing.support.rows import Row

NUM_PROMPT_TOKENS = 40

Story = Sequence[Ask | FinishReason | None]
"""One entry per call: what is asked, how the request ends before it, or None where it is not in the batch."""


def story(k: int) -> list[Ask]:
    """Return the life of a request: a prompt in two pieces, then steps of every kind.

    Caps change from step to step, drafts are wanted after no news, one token and many, and some tokens come while none is.
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
    feed: Feed, stories: Mapping[str, Story], *, is_reversed: bool = False
) -> dict[str, list[Row | None]]:
    """Run stories side by side and return, for each request, what was drafted in each call.

    Args:
        feed: knows the requests.
        stories: one per request; they may differ in length.
        is_reversed: whether every other batch has its rows the other way round.
    """
    drafted: dict[str, list[Row | None]] = {name: [] for name in stories}
    for turn in range(max(map(len, stories.values()))):
        now = {name: told[turn] for name, told in stories.items() if turn < len(told)}
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
