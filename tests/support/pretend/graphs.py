"""Captured graphs: the operations of a function at fixed addresses, run again without its Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass
class Tape:
    """Operations on the host's tensors, in order."""

    entries: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], list[torch.Tensor]]] = field(
        default_factory=list
    )

    def add(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outs: list[torch.Tensor],
    ) -> None:
        """Add an operation that has run; `outs` are its results, none for one that only writes to its arguments."""
        self.entries.append((function, args, kwargs, outs))

    def play(self) -> None:
        """Run the operations again on the same memory."""
        for function, args, kwargs, outs in self.entries:
            again = function(*args, **kwargs)
            if not outs:
                continue
            values = (again,) if isinstance(again, torch.Tensor) else again
            for place, value in zip(outs, values, strict=True):
                if place.data_ptr() != value.data_ptr():
                    place.copy_(value)
