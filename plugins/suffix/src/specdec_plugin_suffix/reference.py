"""Reference implementation of suffix decoding in plain Python: the specification that the trees are tested against.

A match is a suffix of the text, at least one token long, that occurs in the text itself or in earlier responses. The
probability of a path after a match is the share of the match's occurrences that continue with it; the occurrence at the very
end of a text counts too. A draft may be as long as the match times a factor; match and draft together may be no longer than
the depth of a tree. For every match the likeliest path is drafted (or, as a tree, the likeliest nodes). The draft with the
most expected tokens, the sum of its nodes' probabilities, is chosen. Ties between tokens or drafts may be broken arbitrarily.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Word = tuple[int, ...]
ROUNDING = 1e-5


@dataclass(frozen=True)
class Rules:
    """Limits of drafts."""

    max_nodes: int
    depth: int
    max_spec_factor: float = 1.0
    min_token_prob: float = 0.1


def drafts(
    text: Sequence[int], responses: Sequence[Sequence[int]], rules: Rules
) -> dict[Word, list[tuple[float, ...]]]:
    """Return all valid chains after `text`, each with the possible probabilities of its prefixes."""
    found = [
        list(_paths(texts, match, most, rules)) for texts, match, most in _matches(text, responses, rules)
    ]
    # The number of expected tokens that is reached however ties are broken.
    sure = max((min(sum(probs) for _, probs in paths) for paths in found), default=0.0)
    allowed: dict[Word, list[tuple[float, ...]]] = {}
    for path, probs in (each for paths in found for each in paths):
        if sum(probs) >= sure - ROUNDING:
            allowed.setdefault(path, []).append(probs)
    return allowed or {(): [()]}


def tree_probs(text: Sequence[int], responses: Sequence[Sequence[int]], rules: Rules) -> list[float]:
    """Return the probabilities of the nodes of the drafted tree, likeliest first; its shape may be ambiguous."""
    found = [_likeliest(texts, match, most, rules) for texts, match, most in _matches(text, responses, rules)]
    return max(found, key=sum, default=[])


def count(texts: Sequence[Sequence[int]], word: Word) -> int:
    """Return the number of occurrences of a word."""
    size = len(word)
    return sum(tuple(text[i : i + size]) == word for text in texts for i in range(len(text) - size + 1))


def _matches(
    text: Sequence[int], responses: Sequence[Sequence[int]], rules: Rules
) -> Iterator[tuple[Sequence[Sequence[int]], Word, int]]:
    """Yield the texts to search, the match, and the maximum number of nodes."""
    for texts in ([text], responses):
        for length in range(1, min(rules.depth, len(text))):
            most = min(rules.max_nodes, int(length * rules.max_spec_factor + 1e-6))
            match = tuple(text[len(text) - length :])
            if count(texts, match):
                yield texts, match, most


def _next(texts: Sequence[Sequence[int]], word: Word, depth: int) -> dict[int, int]:
    """Return how often each token follows a word."""
    if len(word) >= depth:
        return {}
    tokens = {token for text in texts for token in text}
    return {token: times for token in tokens if (times := count(texts, (*word, token)))}


def _paths(
    texts: Sequence[Sequence[int]],
    match: Word,
    most: int,
    rules: Rules,
    path: Word = (),
    probs: tuple[float, ...] = (),
) -> Iterator[tuple[Word, tuple[float, ...]]]:
    following = _next(texts, match + path, rules.depth) if len(path) < most else {}
    best = max(following.values(), default=0)
    prob = best / count(texts, match)
    if not best or prob < rules.min_token_prob:
        yield path, probs
        return
    for token, times in following.items():
        if times == best:
            yield from _paths(texts, match, most, rules, (*path, token), (*probs, prob))


def _likeliest(texts: Sequence[Sequence[int]], match: Word, most: int, rules: Rules) -> list[float]:
    chosen: list[float] = []
    open_nodes: list[tuple[float, Word]] = [(1.0, ())]
    while open_nodes:
        prob, path = max(open_nodes)
        open_nodes.remove((prob, path))
        if path:
            if len(chosen) == most:
                break
            chosen.append(prob)
        for token, times in _next(texts, match + path, rules.depth).items():
            share = times / count(texts, match)
            if share >= rules.min_token_prob:
                open_nodes.append((share, (*path, token)))
    return chosen
