"""Loads classes by path: `./file.py:Class` for code that is not packaged, or `package.module.Class`."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from specdec.errors import PluginError, described, is_interrupt


def is_class_path(name: str) -> bool:
    """Return whether a name is a file or a dotted path rather than the name of a plugin."""
    return is_file_path(name) or is_dotted_path(name)


def is_file_path(name: str) -> bool:
    """Return whether a name has the form `path/to/file.py:Class`, the class being optional."""
    return name.endswith(".py") or ".py:" in name


def is_dotted_path(name: str) -> bool:
    """Return whether a name consists of at least two identifiers with dots between them."""
    parts = name.split(".")
    return len(parts) > 1 and all(part.isidentifier() for part in parts)


def load_class(path: str) -> object:
    """Import the object that a class path names; the caller checks whether it is suitable.

    Raises:
        PluginError: naming the path and the cause.
    """
    if is_file_path(path):
        file, _, attribute = path.partition(".py:")
        if not attribute:
            raise PluginError(f"{path!r} names no class: write {path.removesuffix(':')}:ClassName")
        return _attribute(_module_of(Path(f"{file}.py"), path), attribute, path)
    module_name, _, attribute = path.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise PluginError(f"{path!r}: cannot import {module_name!r}: {described(error)}") from error
    return _attribute(module, attribute, path)


def _module_of(file: Path, path: str) -> ModuleType:
    file = Path(os.path.realpath(os.path.expanduser(file)))
    if not os.path.isfile(file):
        raise PluginError(f"{path!r}: there is no file {file}")
    digest = hashlib.sha256(str(file).encode()).hexdigest()[:8]
    name = f"specdec_local_{file.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise PluginError(f"{path!r}: {file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses and pydantic look up their module there
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if is_interrupt(error):
            raise
        raise PluginError(f"{path!r}: {file} cannot be run: {described(error)}") from error
    return module


def _attribute(module: ModuleType, attribute: str, path: str) -> object:
    found: object = getattr(module, attribute, None)
    if found is None:
        own = [n for n, v in vars(module).items() if isinstance(v, type) and v.__module__ == module.__name__]
        listed = ", ".join(sorted(own)) or "none"
        raise PluginError(f"{path!r}: there is no class {attribute!r}; classes defined there: {listed}")
    return found
