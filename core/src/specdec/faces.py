"""Lazy names of a package: importing it does not import the modules behind them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

__all__ = ["lazily"]


def lazily(package: str) -> Callable[[str], Any]:
    """Return a `__getattr__` for a package, whose names are those that it imports under `TYPE_CHECKING`.

    Args:
        package: its `__name__`.
    """

    def get(name: str) -> Any:
        module = _homes(package).get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(module), name)
        setattr(sys.modules[package], name, found)
        return found

    return get


@cache
def _homes(package: str) -> dict[str, str]:
    """Return the module of each name that a package imports for type checkers."""
    loader: Any = sys.modules[package].__loader__
    source = loader.get_source(package)
    if source is None:
        raise ImportError(f"{package} is installed without its .py files, which it reads its names from")
    checked = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
    imports = [node for block in checked for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in imports for alias in node.names}
