"""Reference implementation of suffix decoding in plain Python: the specification that the trees are tested against.

A match is a suffix of the text, at least one token long, that occurs in the text itself or in earlier responses. The
probability of a path after a match is the share of the match's occurrences that continue with it; the occurrence at the very
end of a text counts too. A draft may be as long as the match times a factor; match and draft together may be no longer than
the depth of a tree. For every match the likeliest path is drafted (or, as a tree, the likeliest nodes). The draft with the
most expected tokens, the sum of its nodes' probabilities, is chosen. Ties between tokens or drafts may be broken arbitrarily.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Path = tuple[int, ...]
Ends = list[tuple[Sequence[int], int]]
"""Where a word occurs: texts, and its ends in them."""
ROUNDING = 1e-5


@dataclass(frozen=True)
class Rules:
    """Limits of drafts."""

    max_nodes: int
    depth: int
    max_spec_factor: float = 1.0
    min_token_prob: float = 0.1


@dataclass(frozen=True)
class Match:
    """A suffix of the text that occurs."""

    ends: Ends
    length: int
    max_nodes: int
    """The most nodes after it."""


def drafts(
    text: Sequence[int], responses: Sequence[Sequence[int]], rules: Rules
) -> dict[Path, list[tuple[float, ...]]]:
    """Return all valid chains after `text`, each with the possible probabilities of its prefixes."""
    found = [list(_paths(match, rules, match.ends)) for match in _matches(text, responses, rules)]
    # The number of expected tokens that is reached however ties are broken.
    sure = max((min(sum(probs) for _, probs in paths) for paths in found), default=0.0)
    allowed: dict[Path, list[tuple[float, ...]]] = {}
    for path, probs in (each for paths in found for each in paths):
        if sum(probs) >= sure - ROUNDING:
            allowed.setdefault(path, []).append(probs)
    return allowed or {(): [()]}


def tree_probs(text: Sequence[int], responses: Sequence[Sequence[int]], rules: Rules) -> list[float]:
    """Return the probabilities of the nodes of the drafted tree, likeliest first; its shape may be ambiguous."""
    return max((_likeliest(match, rules) for match in _matches(text, responses, rules)), key=sum, default=[])


def _matches(text: Sequence[int], responses: Sequence[Sequence[int]], rules: Rules) -> Iterator[Match]:
    for texts in ([text], responses):
        ends = [(each, end) for each in texts for end in range(1, len(each) + 1)]
        for length in range(1, min(rules.depth, len(text))):
            ends = [
                (each, end) for each, end in ends if end >= length and each[end - length] == text[-length]
            ]
            if ends:
                yield Match(ends, length, min(rules.max_nodes, int(length * rules.max_spec_factor + 1e-6)))


def _next(match: Match, ends: Ends, path: Path, rules: Rules) -> dict[int, Ends]:
    """Return where the match and a path after it go on, by the next token."""
    following: dict[int, Ends] = defaultdict(list)
    if match.length + len(path) < rules.depth:
        for text, end in ends:
            if end < len(text):
                following[text[end]].append((text, end + 1))
    return following


def _paths(
    match: Match, rules: Rules, ends: Ends, path: Path = (), probs: tuple[float, ...] = ()
) -> Iterator[tuple[Path, tuple[float, ...]]]:
    following = _next(match, ends, path, rules) if len(path) < match.max_nodes else {}
    best = max(map(len, following.values()), default=0)
    prob = best / len(match.ends)
    if not best or prob < rules.min_token_prob:
        yield path, probs
        return
    for token, places in following.items():
        if len(places) == best:
            yield from _paths(match, rules, places, (*path, token), (*probs, prob))


def _likeliest(match: Match, rules: Rules) -> list[float]:
    chosen: list[float] = []
    open_nodes: list[tuple[float, Path, Ends]] = [(1.0, (), match.ends)]
    while open_nodes:
        node = max(open_nodes, key=lambda node: node[0])
        open_nodes.remove(node)
        prob, path, ends = node
        if path:
            if len(chosen) == match.max_nodes:
                break
            chosen.append(prob)
        for token, places in _next(match, ends, path, rules).items():
            share = len(places) / len(match.ends)
            if share >= rules.min_token_prob:
                open_nodes.append((share, (*path, token), places))
    return chosen
