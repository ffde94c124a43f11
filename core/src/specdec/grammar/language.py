"""Checks whether a grammar has any finite text."""

from __future__ import annotations

import re

_RULE = re.compile(r"^(\w[\w.-]*) ::= (.*)$", re.M)
_LOOKAHEAD = re.compile(r" \(=\(.*\)\)$")
_TOKEN = re.compile(
    r'"(?:\\.|[^"\\])*"[*+?]?'  # a text
    r"|\[(?:\\.|[^\]\\])*\][*+?]?"  # a class of characters
    r"|\w[\w.-]*\((?:\"(?:\\.|[^\"\\])*\"|[^\"()]|\([^()]*\))*\)"  # the library's built-in functions
    r"|\w[\w.-]*"
    r"|[()|*+?]"
    r"|\{[\d, ]*\}"
)


def can_end(grammar: str) -> bool:
    """Return whether the language of a grammar is non-empty.

    Args:
        grammar: a compiled grammar as xgrammar prints it: one rule per line, each a choice of sequences, including `root`.
    """
    bodies = {name: _choices(_LOOKAHEAD.sub("", body)) for name, body in _RULE.findall(grammar)}
    able: set[str] = set()
    is_growing = True
    while is_growing:
        before = len(able)
        for name, choices in reversed(bodies.items()):  # rules mostly depend on later rules
            if any(all(need in able or need not in bodies for need in choice) for choice in choices):
                able.add(name)
        is_growing = len(able) > before
    return "root" in able or "root" not in bodies


def _choices(body: str) -> list[list[str]]:
    """Return the rules that each alternative needs; nested brackets count towards the outer sequence."""
    choices: list[list[str]] = [[]]
    depth = 0
    for token in _TOKEN.findall(body):
        if token == "(":
            depth += 1
        elif token == ")":
            depth -= 1
        elif token == "|" and depth <= 1:
            choices.append([])
        elif token.startswith("{0") and choices[-1]:
            choices[-1].pop()
        elif re.fullmatch(r"\w[\w.-]*", token):
            choices[-1].append(token)
    return choices
