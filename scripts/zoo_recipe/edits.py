"""Mechanical edits of functions: the original text, the instruction, and the edited text."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass

from zoo_recipe.corpus import SourceFile
from zoo_recipe.functions import Function, functions

_MAX_BYTES = 1000
_MIN_LINES = 4
_MIN_NAME = 3
_MIN_USES = 2


@dataclass(frozen=True)
class Edit:
    """An edit of one function.

    Args:
        question: the instruction and the original function.
        answer: the edited function.
        line: line of the file at which the function begins, from 1.
    """

    question: str
    answer: str
    line: int


def file_edits(file: SourceFile, *, seed: int) -> Iterator[Edit]:
    """One edit for each function of a file that has something to rename or a docstring to remove.

    Args:
        file: source file.
        seed: seed of the choices; each file has its own stream.
    """
    rng = random.Random(f"{seed} {file.path}")
    found = [
        function
        for function in functions(file, max_bytes=_MAX_BYTES)
        if function.source.count("\n") >= _MIN_LINES
    ]
    names = sorted({name for function in found for name in _parameters(function)})
    for function in found:
        edits = [*_renamings(function, names, rng), *_without_docstring(function)]
        if edits:
            yield rng.choice(edits)


def _parameters(function: Function) -> list[str]:
    """Parameters used in the body, except `self` and very short names."""
    node = function.node
    used = [name.id for name in ast.walk(node) if isinstance(name, ast.Name)]
    return [
        parameter.arg
        for parameter in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        if len(parameter.arg) >= _MIN_NAME
        and parameter.arg != "self"
        and used.count(parameter.arg) >= _MIN_USES
    ]


def _renamings(function: Function, names: list[str], rng: random.Random) -> Iterator[Edit]:
    """Rename one of the function's parameters to the name of a parameter elsewhere in the file."""
    parameters = _parameters(function)
    free = [name for name in names if name not in function.source]
    if parameters and free:
        old, new = rng.choice(parameters), rng.choice(free)
        question = f"Rename {old} to {new} in this function:\n{function.source}"
        yield Edit(question, _renamed(function, old, new), function.line)


def _renamed(function: Function, old: str, new: str) -> str:
    """The source with variable `old` renamed to `new`; attributes, keywords, strings and comments stay."""
    lines = [line.encode() for line in function.source.splitlines(keepends=True)]
    places = [
        (node.lineno - 1, node.col_offset)
        for node in ast.walk(function.node)
        if (isinstance(node, ast.Name) and node.id == old) or (isinstance(node, ast.arg) and node.arg == old)
    ]
    for row, column in sorted(places, reverse=True):
        line = lines[row]
        lines[row] = line[:column] + new.encode() + line[column + len(old.encode()) :]
    return b"".join(lines).decode()


def _without_docstring(function: Function) -> Iterator[Edit]:
    """Remove the docstring, if a body remains and the docstring is on lines of its own."""
    body = function.node.body
    if ast.get_docstring(function.node, clean=False) is None or len(body) == 1:
        return
    first, second = body[0], body[1]
    assert first.end_lineno is not None
    lines = function.source.splitlines(keepends=True)
    if function.node.lineno < first.lineno and first.end_lineno < second.lineno:
        kept = lines[: first.lineno - 1] + lines[first.end_lineno :]
        question = f"Remove the docstring of this function:\n{function.source}"
        yield Edit(question, "".join(kept), function.line)
