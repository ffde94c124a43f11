"""Reference implementation of prompt lookup: the specification that the fast paths are tested against."""

from __future__ import annotations

from collections.abc import Sequence


def draft(
    tokens: Sequence[int], max_nodes: int, shortest: int, longest: int, match: str = "recent"
) -> list[int]:
    """Draft up to `max_nodes` tokens after `tokens` by rescanning all of them.

    The match is the longest n-gram, of `longest` down to `shortest` tokens, that ends the text and also occurs
    earlier; the earlier occurrence may overlap the end of the text. The draft continues the most recent
    (`match="recent"`) or the earliest (`"first"`) such occurrence. With `"recent"` a draft that reaches the end
    of the text continues with its own tokens, so `a a` is followed by `a a a ...`: a text that has started to
    repeat tends to continue, and any draft is lossless.

    Returns:
        at most `max_nodes` token ids; none without a match.
    """
    size = len(tokens)
    for length in range(min(longest, size - 1), shortest - 1, -1):
        suffix = list(tokens[size - length :])
        ends = [end for end in range(length, size) if list(tokens[end - length : end]) == suffix]
        if ends:
            text = list(tokens)
            source = ends[-1] if match == "recent" else ends[0]
            available = max_nodes if match == "recent" else min(max_nodes, size - source)
            for step in range(available):
                text.append(text[source + step])
            return text[size:]
    return []
