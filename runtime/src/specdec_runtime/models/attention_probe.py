"""Finds, in a small first pass, which layers of a model call our attention, and with which sliding window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from specdec.errors import ModelError

_DENSE = 64


@dataclass
class AttentionProbe:
    """Collects the sliding window of each layer.

    `transformers` passes visibility to attention as a mask; only some models also pass the window as an argument.
    In the probing pass every mask is a placeholder, and its rule is stored here, because later passes build no masks.
    """

    max_context: int
    """Rules are compared up to this position."""
    windows: dict[int, int | None] = field(default_factory=dict)
    """Window of every layer that called the attention function; None if a row sees everything before it."""
    _rules: dict[int, tuple[torch.Tensor, int | None]] = field(default_factory=dict)

    def mask(
        self, mask_function: Callable[..., Any], local_size: int | None, device: torch.device
    ) -> torch.Tensor:
        """Return a placeholder for a mask and store its rule.

        Raises:
            ModelError: if the rule is neither causal nor a causal window.
        """
        if not self._is_window(mask_function, local_size, device):
            remedy = "" if local_size is None else f": pass max_model_len={local_size} or less"
            raise ModelError(
                "the model masks attention by a rule that is neither causal nor a sliding window (chunks, prefixes); "
                f"specdec does not know it within max_model_len={self.max_context}{remedy}"
            )
        stand_in = torch.zeros((1, 1, 1, 1), dtype=torch.bool, device=device)
        window = None if local_size is None or local_size >= self.max_context else local_size
        self._rules[stand_in.data_ptr()] = stand_in, window
        return stand_in

    def note(
        self, module: nn.Module, layer: int, mask: torch.Tensor | None, window: int | None
    ) -> int | None:
        """Record a layer and return its window.

        Raises:
            ModelError: if the layer was recorded already, if the mask is not one of ours, or if its rule differs from the
                window passed as an argument.
        """
        if layer in self.windows:
            raise ModelError(
                f"{type(module).__name__} calls attention more than once in layer {layer}, and the cache has room for the keys "
                "and values of one call"
            )
        if window is not None and window >= self.max_context:
            window = None
        if mask is not None:
            if mask.data_ptr() not in self._rules:
                raise ModelError(
                    f"{type(module).__name__} builds an attention mask of its own, which would be ignored"
                )
            rule = self._rules[mask.data_ptr()][1]
            if window is not None and window != rule:
                raise ModelError(
                    f"{type(module).__name__} passes a window of {window} and a mask with a window of {rule}; specdec "
                    "cannot tell which one holds"
                )
            window = rule
        self.windows[layer] = window
        return window

    def _is_window(
        self, mask_function: Callable[..., Any], local_size: int | None, device: torch.device
    ) -> bool:
        around = [] if local_size is None else [local_size * n + d for n in (1, 2, 3) for d in (-1, 0, 1)]
        points = {*range(_DENSE), *around, self.max_context - 1}
        positions = torch.tensor(sorted(p for p in points if p < self.max_context), device=device)
        rows, keys = positions[:, None], positions[None, :]
        expected = keys <= rows
        if local_size is not None and local_size < self.max_context:
            window = expected & (keys > rows - local_size)
        else:
            window = expected
        zero = torch.zeros((), dtype=torch.int64, device=device)
        try:
            got = torch.as_tensor(mask_function(zero, zero, rows, keys)).expand_as(window)
        except (TypeError, ValueError, RuntimeError, IndexError):
            return False
        return torch.equal(got, window)
