"""Writes regular expressions so that xgrammar matches what they mean.

Left alone, xgrammar ignores what it does not know (look-aheads, `\\A`), anchors a JSON schema's `pattern` at both ends, and
does not escape what a pattern matches within a JSON string.
"""

from __future__ import annotations

import re
from itertools import product

from specdec.grammar.regex import (
    ANY,
    EMPTY,
    Anchor,
    Chars,
    Choice,
    Node,
    Ranges,
    Repeat,
    Sequence,
    outside,
    parsed,
)

_MAX_ALTERNATIVES = 64
"""The most alternatives that anchors may lead to."""
_SHORT = {0x08: "b", 0x09: "t", 0x0A: "n", 0x0C: "f", 0x0D: "r", 0x22: '"', 0x5C: "\\"}
"""JSON's short escapes."""
_ESCAPED: Ranges = ((0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C))
_UNIT = re.compile(r"\[(?:\\.|[^\]\\])*\]|\\.|\((?:\\.|\[(?:\\.|[^\]\\])*\]|[^()\\\[])*\)", re.S)
"""A set, an escape, or a group without groups."""
_HEX = "0123456789abcdef"
_CARET = ord("^")
_AS_GRAMMAR = "(\u00e9){0}"
"""Matches the empty text. xgrammar 0.2.8 turns a pattern in ASCII alone into an automaton without quotes and backslashes, where
`(xy+)?` also matches `y`. Others it turns into rules, which are right."""


def for_text(regex: str) -> str:
    """Return a regular expression for a whole text.

    Raises:
        ValueError: saying what is not supported.
    """
    return _Writer(is_json=False).write(without_anchors(parsed(regex), is_search=False))


def for_json_string(regex: str) -> str:
    """Return a JSON schema's `pattern` for what is between the quotes of a JSON string.

    Raises:
        ValueError: saying what is not supported.
    """
    return _json(without_anchors(parsed(regex), is_search=True))


def for_marked_text(regex: str) -> str:
    """Return a JSON schema's `pattern` for text that a mark such as `</parameter>` ends: without a `<` that it does not name.

    Raises:
        ValueError: saying what is not supported.
    """
    return _Writer(is_json=False, left_out="<").write(without_anchors(parsed(regex), is_search=True))


def of_length(least: int, most: int | None) -> str:
    """Return a `pattern`, as `for_json_string` does, for any characters of a JSON string."""
    return _json(Repeat(ANY, least, most))


def _json(node: Node) -> str:
    return _Writer(is_json=True).write(node) + _AS_GRAMMAR


class _Writer:
    def __init__(self, *, is_json: bool, left_out: str = "") -> None:
        self._is_json = is_json
        self._kept = outside(tuple((ord(char), ord(char)) for char in left_out))

    def write(self, node: Node) -> str:
        """Return a regular expression in xgrammar's syntax, which Python reads as well; empty for the empty text."""
        if isinstance(node, Chars):
            return self._chars(node.ranges)
        if isinstance(node, Sequence):
            return "".join(map(self.write, node.parts))
        if isinstance(node, Choice):
            options = list(dict.fromkeys(map(self.write, node.options)))
            return _one_of([option for option in options if option], is_optional="" in options)
        assert isinstance(node, Repeat), "anchors are taken out before"
        inner = self.write(node.part)
        if not inner or node.most == 0:
            return ""
        times = {(0, None): "*", (1, None): "+", (0, 1): "?", (1, 1): ""}.get((node.least, node.most))
        if times is None:
            times = f"{{{node.least},{'' if node.most is None else node.most}}}"
        return (inner if _is_unit(inner) else f"({inner})") + times

    def _chars(self, ranges: Ranges) -> str:
        if not ranges:
            raise ValueError("it has a set without characters")
        if not _is_single(ranges):
            ranges = _common(ranges, self._kept)
        if not self._is_json:
            return _set(ranges)
        plain, escaped = _common(ranges, outside(_ESCAPED)), _common(ranges, _ESCAPED)
        if not escaped:
            return _set(ranges)
        codes = [code for low, high in escaped for code in range(low, high + 1)]
        options = [_set(plain)] if plain else []
        short = "".join(_SHORT[code] for code in codes if code in _SHORT)
        if short:
            options.append("\\\\" + _set(tuple((ord(char), ord(char)) for char in sorted(short))))
        for high in (0, 1):
            low = [_HEX[code % 16] for code in codes if code // 16 == high and code not in _SHORT]
            if low:
                options.append(f"\\\\u00{high}" + _set(tuple((ord(char), ord(char)) for char in low)))
        return _one_of(options)


def _one_of(options: list[str], *, is_optional: bool = False) -> str:
    if not options:
        return ""
    if len(options) == 1 and not is_optional:
        return options[0]
    whole = options[0] if len(options) == 1 and _is_unit(options[0]) else f"({'|'.join(options)})"
    return whole + ("?" if is_optional else "")


def _is_unit(text: str) -> bool:
    """Return whether a repetition after a text repeats all of it."""
    return len(text) == 1 or _UNIT.fullmatch(text) is not None


def _is_single(ranges: Ranges) -> bool:
    return len(ranges) == 1 and ranges[0][0] == ranges[0][1]


def _common(one: Ranges, other: Ranges) -> Ranges:
    pairs = ((max(a, c), min(b, d)) for (a, b), (c, d) in product(one, other))
    return tuple((low, high) for low, high in pairs if low <= high)


def _set(ranges: Ranges) -> str:
    if _is_single(ranges):
        return _char(ranges[0][0], "\\^$.*+?()[]{}|")
    ordered = list(ranges)
    if ranges[0][0] == _CARET:  # written first it would negate the set
        ordered = [(_CARET + 1, ranges[0][1]), *ranges[1:], (_CARET, _CARET)]
    edges = [(_char(low, "\\[]-"), _char(high, "\\[]-")) for low, high in ordered if low <= high]
    return f"[{''.join(low if low == high else f'{low}-{high}' for low, high in edges)}]"


def _char(code: int, special: str) -> str:
    if code < 0x20 or code == 0x7F:
        return f"\\u{code:04x}"
    return ("\\" if chr(code) in special else "") + chr(code)


def without_anchors(node: Node, *, is_search: bool) -> Node:
    """Return an expression for whole texts.

    Args:
        node: an expression.
        is_search: whether it may match anywhere in the text, as a `pattern` does, and not only all of it.

    Raises:
        ValueError: for an anchor between characters.
    """
    around = (Repeat(ANY, 0, None),) if is_search else ()
    return Choice(
        tuple(
            Sequence((*(() if starts else around), inner, *(() if ends else around)))
            for starts, inner, ends in _alternatives(node)
        )
    )


def _alternatives(node: Node) -> list[tuple[bool, Node, bool]]:
    """Return alternatives without anchors, each with whether it begins and ends the text."""
    if not _has_anchor(node):
        return [(False, node, False)]
    if isinstance(node, Anchor):
        return [(node.is_start, EMPTY, not node.is_start)]
    if isinstance(node, Choice):
        return [found for option in node.options for found in _alternatives(option)]
    if not isinstance(node, Sequence):
        raise ValueError("an anchor in a repetition is not supported")
    whole: list[tuple[bool, Node, bool]] = [(False, EMPTY, False)]
    for part in node.parts:
        pairs = [(one, other) for one in whole for other in _alternatives(part)]
        if len(pairs) > _MAX_ALTERNATIVES:
            raise ValueError("it has too many anchors")
        whole = []
        for (starts, before, ends), (restarts, behind, now_ends) in pairs:
            if (ends and behind != EMPTY) or (restarts and before != EMPTY):
                raise ValueError(
                    "an anchor between characters is not supported: ^ begins and $ ends a pattern"
                )
            inner = behind if before == EMPTY else before if behind == EMPTY else Sequence((before, behind))
            whole.append((starts or restarts, inner, ends or now_ends))
    return whole


def _has_anchor(node: Node) -> bool:
    if isinstance(node, Repeat):
        return _has_anchor(node.part)
    inner = node.parts if isinstance(node, Sequence) else node.options if isinstance(node, Choice) else ()
    return isinstance(node, Anchor) or any(map(_has_anchor, inner))
