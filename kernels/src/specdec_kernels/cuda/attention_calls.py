"""The attention calls of a model, so that the kernels of all its passes are compiled before the first request."""

from __future__ import annotations

from typing import Any

import torch

from specdec_kernels.triton.paged_attention import configurations, paged_attention, request_counts

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
        self._kinds.setdefault(key, (query[:1], pages, num_words, options))

    def compile(self, num_requests: int, bounds: list[int]) -> None:
        """Launch every kernel that passes may need, for requests without rows.

        Args:
            num_requests: the most requests of a pass.
            bounds: values of `max_context_len`.
        """
        sizes = [(count, bound) for count in request_counts(num_requests) for bound in bounds]
        for query, pages, num_words, options in self._kinds.values():
            is_invariant = options["batch_invariant"]
            masks: list[dict[str, Any]] = [{}]
            if num_words:
                mask = torch.full((1, num_words), -1, dtype=torch.int64, device=query.device)
                places = None if options["window"] is None else mask.new_zeros(1)
                masks.append({"tree_mask": mask, "positions": places})
            for count, bound in sizes:
                shapes = (count, 1), (count + 1,), (count,)
                rows = [torch.zeros(shape, dtype=torch.int64, device=query.device) for shape in shapes]
                for config in configurations(query, *pages, bound, batch_invariant=is_invariant):
                    for mask in masks:
                        paged_attention(
                            query, *pages, *rows, max_context_len=bound, config=config, **options, **mask
                        )
