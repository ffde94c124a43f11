"""Reads a GGUF file's metadata once: transformers does so for the configuration, the weights and the tokenizer each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np


@contextmanager
def read_once() -> Iterator[None]:
    """Make `gguf.GGUFReader` return the same reader for the same path, and `gguf.get_tensor_name_map` the same map.

    A vocabulary of 262,144 ids takes a reader seconds, most of them spent on slices of `np.memmap`. transformers asks for the
    map of a model of 30 layers 397 times, which took 7 of 16 s.
    """
    gguf: Any = import_module("gguf")
    published: Any = gguf.GGUFReader

    class Reader(published):  # type: ignore[misc]  # a class of another package, without types
        data: Any

        def _get(self, *arguments: Any, **settings: Any) -> Any:
            self.data = np.asarray(self.data)
            return super()._get(*arguments, **settings)

    name_map = gguf.get_tensor_name_map
    gguf.GGUFReader, gguf.get_tensor_name_map = lru_cache(maxsize=1)(Reader), lru_cache(maxsize=1)(name_map)
    try:
        yield
    finally:
        gguf.GGUFReader, gguf.get_tensor_name_map = published, name_map
