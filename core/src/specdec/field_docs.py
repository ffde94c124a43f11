"""Shows the docstrings of fields in `help()`, which knows those of classes and functions only."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator

__all__ = ["show_fields"]


class _Lazy:
    """A docstring that is made when somebody asks for it."""

    def __init__(self, doc: str) -> None:
        self._doc = doc

    def __get__(self, instance: object, owner: type) -> str:
        return _with_fields(owner, self._doc)


def show_fields(*classes: type) -> None:
    """Let `help()` show the fields of classes, which have docstrings of their own, with these.

    The source is read when help is asked for; at once for classes with a metaclass, such as enums, whose docstring `help()`
    takes as it lies there.
    """
    for cls in classes:
        doc = cls.__doc__ or ""
        made = _Lazy(doc) if type(cls) is type else _with_fields(cls, doc)
        setattr(cls, "__doc__", made)  # noqa: B010  # its type is str


def _with_fields(owner: type, doc: str) -> str:
    try:
        fields = list(_fields(owner))
    except (OSError, TypeError, SyntaxError):  # there is no source
        return doc
    return "\n".join([inspect.cleandoc(doc), "", "Attributes:", *fields]) if fields else doc


def _fields(owner: type) -> Iterator[str]:
    """Yield a line, or several, for each field of a class and of the dataclasses that it derives from."""
    for cls in reversed(owner.__mro__):
        if cls is owner or "__dataclass_fields__" in cls.__dict__:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
            assert isinstance(tree, ast.ClassDef)
            for statement, after in zip(tree.body, [*tree.body[1:], None], strict=True):
                head, text = _head(statement), " ".join(_docstring(after).split())
                if head is not None and (text or isinstance(statement, ast.AnnAssign)):
                    line = f"{head}: {text}" if text else head
                    yield textwrap.fill(line, 100, initial_indent="    ", subsequent_indent="        ")


def _head(statement: ast.stmt) -> str | None:
    """Return the name, type and default of a public field; None for anything else in a class."""
    match statement:
        case ast.AnnAssign(target=ast.Name(name), annotation=kind) if not name.startswith("_"):
            default = "" if statement.value is None else f" = {ast.unparse(statement.value)}"
            return f"{name} ({ast.unparse(kind)}{default})"
        case ast.Assign(targets=[ast.Name(name)]) if not name.startswith("_"):
            return name
    return None


def _docstring(statement: ast.stmt | None) -> str:
    match statement:
        case ast.Expr(ast.Constant(str(text))):
            return text
    return ""
