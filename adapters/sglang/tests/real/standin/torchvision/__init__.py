"""Nothing of torchvision: SGLang imports it for models that read images, and text models call nothing of it."""

from __future__ import annotations

import sys
from types import ModuleType


class _Named(type):
    def __getattr__(cls, name: str) -> str:
        return name


class InterpolationMode(metaclass=_Named):
    """Any name."""


class _Nothing(ModuleType):
    __path__: list[str] = []
    InterpolationMode = InterpolationMode

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


for _name in ("transforms", "transforms.functional", "transforms.v2", "transforms.v2.functional", "io"):
    _module = sys.modules[f"{__name__}.{_name}"] = _Nothing(f"{__name__}.{_name}")
    _parent, _, _own = _module.__name__.rpartition(".")
    setattr(sys.modules[_parent], _own, _module)
