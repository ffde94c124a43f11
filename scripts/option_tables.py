"""Turns configuration classes into Markdown tables: names, types, defaults and descriptions."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import PydanticUndefined
from readme_table import markdown_table

HEAD = ["key", "type", "default", "meaning"]


def options_table(owner: type, *, without: type[BaseModel] | None = None) -> str:
    """Return the fields of a pydantic model or a dataclass as a table.

    Args:
        owner: the class.
        without: leave out the fields of this class, unless the owner redeclares them.
    """
    inherited = set(without.model_fields) - _declared(owner) if without is not None else set()
    return markdown_table([HEAD, *(row for row in _rows(owner) if row[0].strip("`") not in inherited)])


def _rows(owner: type) -> Iterator[list[str]]:
    docs = attribute_docs(owner)
    types = source_annotations(owner)
    for name, default, description in _fields(owner):
        meaning = " ".join((description or docs.get(name, "")).split())
        yield [
            f"`{name}`",
            f"`{types[name]}`",
            "" if default is inspect.Parameter.empty else f"`{default!r}`",
            meaning,
        ]


def _fields(owner: type) -> Iterator[tuple[str, Any, str | None]]:
    """Name, default (or `Parameter.empty`) and description of every field."""
    if issubclass(owner, BaseModel):
        for name, field in owner.model_fields.items():
            yield (
                name,
                inspect.Parameter.empty if field.default is PydanticUndefined else field.default,
                field.description,
            )
        return
    for item in dataclasses.fields(cast(Any, owner)):
        yield (
            item.name,
            inspect.Parameter.empty if item.default is dataclasses.MISSING else item.default,
            None,
        )


def attribute_docs(owner: type) -> dict[str, str]:
    """Return the docstrings below the fields of a class and its bases."""
    docs: dict[str, str] = {}
    for base in reversed(owner.__mro__):
        body = _body(base)
        for field, text in pairwise(body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
            ):
                docs[ast.unparse(field.target)] = str(text.value.value)
    return docs


def source_annotations(owner: type) -> dict[str, str]:
    """Return the annotations of a class and its bases as source text."""
    return {
        ast.unparse(field.target): ast.unparse(field.annotation)
        for base in reversed(owner.__mro__)
        for field in _body(base)
        if isinstance(field, ast.AnnAssign)
    }


def _declared(owner: type) -> set[str]:
    return {ast.unparse(field.target) for field in _body(owner) if isinstance(field, ast.AnnAssign)}


def _body(owner: type) -> list[ast.stmt]:
    if owner in (object, BaseModel) or not hasattr(inspect.getmodule(owner), "__file__"):
        return []
    module = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    (definition,) = module.body
    return definition.body if isinstance(definition, ast.ClassDef) else []
