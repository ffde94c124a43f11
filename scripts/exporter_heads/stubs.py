"""Makes the exporters importable beside this environment: what only their training needs is replaced by empty modules."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
import types
from typing import Any

_MISSING = ("datasets", "hs_connectors", "openai", "aiohttp", "torchvision", "torchaudio", "mooncake")


class _Nothing:
    """A value that takes part in any expression of a module's body."""

    def __init__(self, *arguments: object, **keys: object) -> None:
        pass

    def __call__(self, *arguments: object, **keys: object) -> _Nothing:
        return _Nothing()

    def __getattr__(self, name: str) -> _Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing()

    def __mro_entries__(self, bases: object) -> tuple[type, ...]:
        return (object,)

    def __or__(self, other: object) -> _Nothing:
        return self

    def __ror__(self, other: object) -> _Nothing:
        return self


class _Module(types.ModuleType):
    """A module that has every name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {}) if name[:1].isupper() else _Nothing()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the replaced modules."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        found = name.split(".")[0] in _MISSING
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if found else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def use(exporter: str) -> None:
    """Put an exporter on the path; `EXPORTERS` names the folder, see `exporter_heads`."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    sys.dont_write_bytecode = True
    root = os.environ["EXPORTERS"]
    sys.path[:0] = [f"{root}/{exporter}", f"{root}/extra"]
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
