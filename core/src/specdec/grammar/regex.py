"""Parses regular expressions: what ECMAScript and Python have in common. Everything else is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

_LAST = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)
_MAX_DEPTH = 50
_MAX_LENGTH = 10_000

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Chars:
    """One character of a set, as sorted ranges of code points."""

    ranges: Ranges


@dataclass(frozen=True)
class Sequence:
    """One part after another; none for the empty text."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Choice:
    """One of several."""

    options: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    """A part several times; without a limit if `most` is None."""

    part: Node
    least: int
    most: int | None


@dataclass(frozen=True)
class Anchor:
    """The beginning or the end of the text."""

    is_start: bool


Node = Chars | Sequence | Choice | Repeat | Anchor
EMPTY = Sequence(())


def joined(ranges: Iterator[tuple[int, int]] | Ranges) -> Ranges:
    """Return ranges sorted, merged and without surrogates."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    below, above = _SURROGATES[0] - 1, _SURROGATES[1] + 1
    halves = [part for low, high in found for part in ((low, min(high, below)), (max(low, above), high))]
    return tuple((low, high) for low, high in halves if low <= high)


def outside(ranges: Ranges) -> Ranges:
    """Return all other characters."""
    edges = [(-1, -1), *sorted(ranges), (_LAST + 1, _LAST + 1)]
    return joined(tuple((a + 1, b - 1) for (_, a), (b, _) in pairwise(edges) if a + 1 <= b - 1))


def _of(text: str) -> Ranges:
    return joined(tuple((ord(char), ord(char)) for char in text))


ANY = Chars(outside(()))
_DIGITS: Ranges = ((0x30, 0x39),)
_WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACES = joined((*_of("\t\n\v\f\r \xa0\u1680\u2028\u2029\u202f\u205f\u3000"), (0x2000, 0x200A)))
_LINE_ENDS = _of("\n\r\u2028\u2029")


@cache
def _all_that(is_meant: Callable[[str], bool]) -> Ranges:
    return joined(tuple((code, code) for code in range(_LAST + 1) if is_meant(chr(code))))


def _is_word(char: str) -> bool:
    return char == "_" or char.isalnum()


def _class_of(letter: str) -> Ranges:
    """Return the characters of `\\d` and its like. ECMAScript and Python differ outside ASCII: only what both take is taken."""
    if letter in "dws":
        return {"d": _DIGITS, "w": _WORD, "s": _SPACES}[letter]
    if letter == "D":
        return outside(_all_that(str.isdecimal))
    if letter == "W":
        return outside(_all_that(_is_word))
    return outside(joined((*_SPACES, *_of("\x1c\x1d\x1e\x1f\x85\ufeff"))))


_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v"}
_HEX = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\}")
_TIMES = re.compile(r"\{(\d+)(?:(,)(\d*))?\}")
_NAME = re.compile(r"\?P?<[A-Za-z_]\w*>|\?:")
_GROUPS = {
    "?=": "a look-ahead", "?!": "a look-ahead", "?<=": "a look-behind", "?<!": "a look-behind", "?P=": "a backreference",
    "?(": "a condition", "?>": "an atomic group", "?#": "a comment",
}  # fmt: skip


class _Parser:
    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0

    def parse(self) -> Node:
        found = self._choice()
        if self._at < len(self._text):
            raise ValueError(f"')' at position {self._at} closes no group")
        return found

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _choice(self) -> Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError(f"groups are nested more than {_MAX_DEPTH} deep")
        options = [self._sequence()]
        while self._next() == "|":
            self._at += 1
            options.append(self._sequence())
        self._depth -= 1
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._next() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom()))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeated(self, part: Node) -> Node:
        sign, times = self._next(), _TIMES.match(self._text, self._at)
        if times is not None:
            self._at = times.end()
            least = int(times[1])
            most = least if times[2] is None else int(times[3]) if times[3] else None
            if most is not None and most < least:
                raise ValueError(f"{times[0]} repeats at least {least} times and at most {most}")
        elif sign and sign in "*+?":
            self._at += 1
            least, most = (1 if sign == "+" else 0), (1 if sign == "?" else None)
        else:
            return part
        if self._next() == "?":  # lazy: the same texts
            self._at += 1
        if (self._next() and self._next() in "*+?") or _TIMES.match(self._text, self._at):
            raise ValueError(f"a repetition of a repetition at position {self._at} is not supported")
        if isinstance(part, Anchor):
            raise ValueError("a repeated anchor is not supported")
        return Repeat(part, least, most)

    def _atom(self) -> Node:
        char = self._next()
        self._at += 1
        if char == "(":
            return self._group()
        if char == "[":
            return Chars(self._set())
        if char == "\\":
            return self._escape()
        if char in "^$":
            return Anchor(is_start=char == "^")
        if char == ".":
            return Chars(outside(_LINE_ENDS))
        if char in "*+?":
            raise ValueError(f"{char!r} at position {self._at - 1} repeats nothing")
        if char == "{":
            raise ValueError(
                f"'{{' at position {self._at - 1} begins no repetition: write \\{{ for the character"
            )
        return Chars(_of(char))

    def _group(self) -> Node:
        start = self._at
        if self._next() == "?":
            for sign, name in _GROUPS.items():
                if self._text.startswith(sign, start):
                    raise ValueError(f"{name}, '({sign}' at position {start - 1}, is not supported")
            kind = _NAME.match(self._text, start)
            if kind is None:
                raise ValueError(f"the group at position {start - 1} has flags, which are not supported")
            self._at = kind.end()
        found = self._choice()
        if self._next() != ")":
            raise ValueError(f"the group at position {start - 1} is not closed")
        self._at += 1
        return found

    def _escape(self) -> Node:
        char = self._next()
        if char and char in "AZz":
            self._at += 1
            return Anchor(is_start=char == "A")
        if char and char in "bB":
            raise ValueError(f"a word boundary, \\{char}, is not supported")
        return Chars(self._escaped())

    def _escaped(self, *, is_in_set: bool = False, is_negated: bool = False) -> Ranges:
        """Return the characters of an escape, after its backslash; in a negated set all that it may mean."""
        char, code = self._next(), _HEX.match(self._text, self._at)
        if not char:
            raise ValueError("it ends with a backslash")
        if code is not None:
            self._at = code.end()
            value = int(code[1] or code[2] or code[3], 16)
            if value > _LAST or _SURROGATES[0] <= value <= _SURROGATES[1]:
                raise ValueError(f"\\{code[0]} is not a character: write it as one, \\u{{1F600}}")
            return ((value, value),)
        self._at += 1
        if char in "dDsSwW":
            return outside(_class_of(char.swapcase())) if is_negated else _class_of(char)
        if char in _CONTROL:
            return _of(_CONTROL[char])
        if char == "b" and is_in_set:
            return _of("\b")
        if char == "0" and not self._next().isdecimal():
            return _of("\0")
        if char == "c" and self._next().isascii() and self._next().isalpha():
            self._at += 1
            return _of(chr(ord(self._text[self._at - 1]) % 32))
        if char == "k" or char.isdecimal():
            raise ValueError(f"a backreference, \\{char}, is not supported")
        if char.isalnum():
            raise ValueError(f"the escape \\{char} is not supported")
        return _of(char)

    def _set(self) -> Ranges:
        start = self._at
        is_negated = self._next() == "^"
        self._at += is_negated
        if self._next() == "]":
            raise ValueError(f"the set at position {start - 1} is empty: write \\] for the character")
        found: list[tuple[int, int]] = []
        while self._next() != "]":
            low = self._member(start, is_negated=is_negated)
            if self._next() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._member(start, is_negated=is_negated)
                if not (_is_single(low) and _is_single(high) and low <= high):
                    raise ValueError(f"the set at position {start - 1} has a range that is none")
                found.append((low[0][0], high[0][0]))
            else:
                found += low
        self._at += 1
        return outside(joined(tuple(found))) if is_negated else joined(tuple(found))

    def _member(self, start: int, *, is_negated: bool) -> Ranges:
        char = self._next()
        if not char:
            raise ValueError(f"the set at position {start - 1} is not closed")
        self._at += 1
        return self._escaped(is_in_set=True, is_negated=is_negated) if char == "\\" else _of(char)


def _is_single(ranges: Ranges) -> bool:
    return len(ranges) == 1 and ranges[0][0] == ranges[0][1]


def parsed(text: str) -> Node:
    """Return a regular expression as a tree: what ECMAScript and Python have in common.

    Raises:
        ValueError: saying what is not supported.
    """
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"it has {len(text)} characters, more than {_MAX_LENGTH}")
    return _Parser(text).parse()
