"""Functions of a source file as standalone texts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from zoo_recipe.corpus import SourceFile


@dataclass(frozen=True)
class Function:
    """A function or method without decorators.

    Args:
        name: its name.
        source: its text without the outer indentation.
        line: line of the file at which it begins, from 1.
    """

    name: str
    source: str
    line: int

    @property
    def node(self) -> ast.FunctionDef:
        """Syntax tree of `source`."""
        (node,) = ast.parse(self.source).body
        assert isinstance(node, ast.FunctionDef)
        return node


def functions(file: SourceFile, *, max_bytes: int) -> Iterator[Function]:
    """Functions and methods of a file of at most `max_bytes` that parse on their own once dedented."""
    lines = file.text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(file.text)):
        if not isinstance(node, ast.FunctionDef) or node.decorator_list:
            continue
        source = "".join(lines[node.lineno - 1 : node.end_lineno])
        if len(source) > max_bytes:
            continue
        indent = " " * node.col_offset
        function = Function(
            node.name,
            "".join(line.removeprefix(indent) for line in source.splitlines(keepends=True)),
            node.lineno,
        )
        if _stands_alone(function):
            yield function


def _stands_alone(function: Function) -> bool:
    """Whether the text is one function definition; not `if x: def f(): ...` on one line, or odd indents."""
    try:
        body = ast.parse(function.source).body
    except SyntaxError:
        return False
    return len(body) == 1 and isinstance(body[0], ast.FunctionDef)
