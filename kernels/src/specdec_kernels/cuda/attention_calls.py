"""The attention calls of a model, so that the kernels of all its passes are compiled before the first request."""

from __future__ import annotations

from itertools import product
from typing import Any

import torch

from specdec_kernels.triton.paged_attention import configurations, paged_attention
from specdec_kernels.triton.paged_attention.config import request_counts

Pages = tuple[torch.Tensor, torch.Tensor]


class AttentionCalls:
    """Calls of the layers, each kind once."""

    def __init__(self) -> None:
        self._kinds: dict[Any, tuple[torch.Tensor, Pages, int, dict[str, Any]]] = {}

    def add(self, query: torch.Tensor, pages: Pages, num_words: int, options: dict[str, Any]) -> None:
        """Keep a call.

        Args:
            query: see `paged_attention`.
            pages: keys and values of the layer.
            num_words: words per row of the tree mask; 0 without one.
            options: arguments that do not depend on the pass.
        """
        shapes = query.stride(), query.shape[1:], *((part.stride(), part.shape[1:]) for part in pages)
        named = {name: value is None if name == "sinks" else value for name, value in options.items()}
        key = query.dtype, shapes, num_words, tuple(named.items())
        if key not in self._kinds:
            shape = 1, *query.shape[1:]
            row = torch.empty_strided(shape, query.stride(), dtype=query.dtype, device=query.device)
            self._kinds[key] = row, pages, num_words, options

    def compile(self, num_requests: int, bounds: list[int]) -> None:
        """Launch every kernel that passes may need, for requests without rows.

        Args:
            num_requests: the most requests of a pass.
            bounds: values of `max_context_len`.
        """
        sizes = [*product(request_counts(num_requests), bounds)]
        for query, pages, num_words, options in self._kinds.values():
            trees = _tree(query, num_words, has_places=options["window"] is not None)
            for count, bound in sizes:
                starts = torch.zeros(count + 1, dtype=torch.int64, device=query.device)
                rows = starts.new_zeros((count, 1)), starts, starts.new_zeros(count)
                is_invariant = options["batch_invariant"]
                found = configurations(query, *pages, bound, batch_invariant=is_invariant)
                for config, tree in product(found, trees):
                    given = options | tree
                    paged_attention(query, *pages, *rows, max_context_len=bound, config=config, **given)


def _tree(query: torch.Tensor, num_words: int, *, has_places: bool) -> list[dict[str, Any]]:
    """Return the arguments of passes without a tree mask, and of those with one if there are any."""
    if not num_words:
        return [{}]
    mask = torch.full((1, num_words), -1, dtype=torch.int64, device=query.device)
    return [{}, {"tree_mask": mask, "positions": mask.new_zeros(1) if has_places else None}]
