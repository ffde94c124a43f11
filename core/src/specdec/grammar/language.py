"""Whether any text can follow a grammar to its end."""

from __future__ import annotations

import re

_RULE = re.compile(r"^(\w[\w.-]*) ::= (.*)$", re.M)
_LOOKAHEAD = re.compile(r" \(=\(.*\)\)$")
_TOKEN = re.compile(
    r'"(?:\\.|[^"\\])*"[*+?]?'  # a text
    r"|\[(?:\\.|[^\]\\])*\][*+?]?"  # a class of characters
    r"|\w[\w.-]*\((?:\"(?:\\.|[^\"\\])*\"|[^\"()]|\([^()]*\))*\)"  # what the library has beside rules
    r"|\w[\w.-]*"
    r"|[()|*+?]"
    r"|\{[\d, ]*\}"
)


def can_end(grammar: str) -> bool:
    """Return whether the language of a grammar has a text.

    Args:
        grammar: as xgrammar writes a compiled one: a rule on each line, each a choice of sequences, `root` among them.
    """
    bodies = {name: _choices(_LOOKAHEAD.sub("", body)) for name, body in _RULE.findall(grammar)}
    able: set[str] = set()
    is_growing = True
    while is_growing:
        before = len(able)
        for name, choices in reversed(bodies.items()):  # rules mostly need those below them
            if any(all(need in able or need not in bodies for need in choice) for choice in choices):
                able.add(name)
        is_growing = len(able) > before
    return "root" in able or "root" not in bodies


def _choices(body: str) -> list[list[str]]:
    """Return for each alternative the rules that it needs; nested brackets count towards the outer sequence."""
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
