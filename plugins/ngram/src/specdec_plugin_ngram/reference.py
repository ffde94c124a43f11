"""What prompt lookup drafts, in a few plain lines: the specification the fast paths are tested against."""

from __future__ import annotations

from collections.abc import Sequence


def draft(
    tokens: Sequence[int], max_nodes: int, shortest: int, longest: int, match: str = "recent"
) -> list[int]:
    """Draft up to `max_nodes` tokens after `tokens` by rescanning all of them.

    The longest n-gram, `longest` down to `shortest` tokens, that ends the text and ends somewhere before is the
    match; an occurrence may overlap the end of the text. The draft is what follows the most recent
    (`match="recent"`) or the earliest (`"first"`) such occurrence. With `"recent"` a draft that reaches the end
    of the text reads on in itself, so after `a a` comes `a a a ...`: any draft is lossless, and a text that has
    started to repeat tends to go on.

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
