"""Captured graphs: the operations of a function at fixed addresses, run again without its Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves


@dataclass
class Tape:
    """Operations on the host's tensors, in order."""

    entries: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]] = field(
        default_factory=list
    )

    def add(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
    ) -> None:
        """Add an operation that has run; `out` is its result, None for one that only writes to its arguments."""
        self.entries.append((function, args, kwargs, out))

    def play(self) -> None:
        """Run the operations again on the same memory."""
        for function, args, kwargs, out in self.entries:
            again = function(*args, **kwargs)
            if out is None:
                continue
            for place, value in zip(tree_leaves(out), tree_leaves(again), strict=True):
                if isinstance(place, torch.Tensor) and place.data_ptr() != value.data_ptr():
                    place.copy_(value)
