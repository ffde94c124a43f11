"""Reads a GGUF file's metadata once, and quickly: transformers does so for the configuration, the weights and the tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

_HEAD = 12
"""Bytes before the elements of an array: their type and their number."""


@contextmanager
def read_once() -> Iterator[None]:
    """Make `gguf.GGUFReader` return the same reader for the same path, and `gguf.get_tensor_name_map` the same map.

    The published reader makes three views of `np.memmap` for each token of a vocabulary: a second for 49,152 tokens, and
    another one for whoever reads them. transformers asks for the map of a model of 30 layers 397 times, which took 7 of 16 s.
    """
    gguf: Any = import_module("gguf")
    published: Any = gguf.GGUFReader

    class Reader(published):  # type: ignore[misc]  # a class of another package, without types
        data: Any
        byte_order: str

        def _get(self, *arguments: Any, **settings: Any) -> Any:
            self.data = np.asarray(self.data)
            return super()._get(*arguments, **settings)

        def _get_field_parts(self, start: int, raw_type: int) -> Any:
            kind = gguf.GGUFValueType
            if raw_type != kind.ARRAY or self.byte_order != "I":
                return super()._get_field_parts(start, raw_type)
            item, length = self._get(start, np.uint32), self._get(start + 4, np.uint64)
            at, parts = start + _HEAD, [item, length]
            if item[0] == kind.STRING:
                data = memoryview(self.data)
                for _ in range(length[0]):
                    at += 8
                    end = at + int.from_bytes(data[at - 8 : at], "little")
                    parts.append(data[at:end])
                    at = end
            elif item[0] in self.gguf_scalar_to_np:
                items = self._get(at, self.gguf_scalar_to_np[item[0]], length[0])
                at += items.nbytes
                parts.extend(items.reshape(-1, 1))
            else:
                return super()._get_field_parts(start, raw_type)
            types = [kind.ARRAY, *[kind(item[0])] * (len(parts) > 2)]
            return at - start, parts, list(range(2, len(parts))), types

    name_map = gguf.get_tensor_name_map
    gguf.GGUFReader, gguf.get_tensor_name_map = lru_cache(maxsize=1)(Reader), lru_cache(maxsize=1)(name_map)
    try:
        yield
    finally:
        gguf.GGUFReader, gguf.get_tensor_name_map = published, name_map
