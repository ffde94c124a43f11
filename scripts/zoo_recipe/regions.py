"""Regions of a Python file in which a prompt may be cut: functions, docstrings, runs of similar siblings."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

Kind = Literal["docstring", "function", "repetition"]
KINDS: tuple[Kind, ...] = ("docstring", "function", "repetition")

_MIN_FUNCTION_LINES = 8
_MIN_DOCSTRING_CHARS = 200
_MIN_SIBLINGS = 4


@dataclass(frozen=True)
class Region:
    """A region of a file worth completing.

    Args:
        kind: the kind of region.
        shown: offset from which the prompt must include the text to make sense.
        start: first offset at which the text may be cut.
        stop: last offset at which it may be cut; the region continues after it.
    """

    kind: Kind
    shown: int
    start: int
    stop: int


def regions(text: str) -> list[Region]:
    """All regions of a Python source text, in the order of the syntax tree.

    Raises:
        SyntaxError: the text is not Python.
    """
    found: list[Region] = []
    offsets = _Offsets(text)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.extend(_function(node, offsets))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            found.extend(_docstring(node, offsets))
        found.extend(_repetitions(node, offsets))
    return found


class _Offsets:
    """Character offsets of the positions in a syntax tree, whose columns count UTF-8 bytes."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def start(self, node: ast.expr | ast.stmt) -> int:
        """Offset of a node's first character."""
        return self._offset(node.lineno, node.col_offset)

    def stop(self, node: ast.expr | ast.stmt) -> int:
        """Offset after a node's last character."""
        assert node.end_col_offset is not None
        return self._offset(self.end_line(node), node.end_col_offset)

    @staticmethod
    def end_line(node: ast.expr | ast.stmt) -> int:
        """Line of a node's last character, from 1."""
        assert node.end_lineno is not None
        return node.end_lineno

    def _offset(self, line: int, column: int) -> int:
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())


def _between(kind: Kind, shown: int, start: int, stop: int) -> Region:
    """A region that is cut between 25 and 75 % of its length."""
    quarter = (stop - start) // 4
    return Region(kind, shown, start + quarter, stop - quarter)


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, offsets: _Offsets) -> Iterator[Region]:
    """The code of a long enough function, without its docstring."""
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    if body and offsets.end_line(body[-1]) - body[0].lineno + 1 >= _MIN_FUNCTION_LINES:
        start = offsets.start(body[0])
        yield _between("function", start, start, offsets.stop(body[-1]))


def _docstring(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module, offsets: _Offsets
) -> Iterator[Region]:
    """A long enough docstring."""
    if ast.get_docstring(node, clean=False) is not None:
        start, stop = offsets.start(node.body[0]), offsets.stop(node.body[0])
        if stop - start >= _MIN_DOCSTRING_CHARS:
            yield _between("docstring", start, start, stop)


def _repetitions(node: ast.AST, offsets: _Offsets) -> Iterator[Region]:
    """Runs of similar siblings over several lines: definitions, assignments, table entries; not imports."""
    for siblings in _sibling_lists(node):
        for _, group in groupby(siblings, key=_shape):
            run = list(group)
            if isinstance(run[0], ast.Import | ast.ImportFrom):
                continue
            lines = {sibling.lineno for sibling in run}
            if len(lines) >= _MIN_SIBLINGS:
                shown = offsets.start(run[0])
                first_cut = offsets.start(run[len(run) // 2])
                yield Region("repetition", shown, first_cut, offsets.stop(run[-1]) - 1)


def _sibling_lists(node: ast.AST) -> Iterator[Sequence[ast.expr | ast.stmt]]:
    """Lists of sibling statements or expressions in a node."""
    if isinstance(node, ast.Dict):
        yield [key for key in node.keys if key is not None]
    elif isinstance(node, ast.List | ast.Tuple | ast.Set):
        yield node.elts
    else:
        for name in ("body", "orelse", "finalbody"):
            value = getattr(node, name, None)
            if isinstance(value, list):
                yield value


def _shape(node: ast.expr | ast.stmt) -> tuple[str, ...]:
    """Structure of a node, equal for siblings that differ only in names and values; ignores docstrings."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
        return (type(node).__name__, *(type(statement).__name__ for statement in body))
    return tuple(type(child).__name__ for child in ast.walk(node))
