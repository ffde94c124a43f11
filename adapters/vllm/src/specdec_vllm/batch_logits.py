"""The logits of a batch to verify, and sampling from them with vLLM."""

from __future__ import annotations

from typing import Any

import torch


class BatchLogits:
    """The drafts and logits of a batch, with vLLM's temperature and top-k/top-p applied on demand.

    Args:
        metadata: vLLM's `SpecDecodeMetadata`.
        final: `[R, V]` after logits processors.
        sampling: vLLM's sampling metadata.
        sampler: vLLM's sampler.
    """

    def __init__(self, metadata: Any, final: torch.Tensor, sampling: Any, sampler: Any) -> None:
        self.final = final
        self.drafts: list[list[int]] = []
        self.starts: list[int] = []
        """Row of the last committed token of each request; the rows of its draft follow."""
        self.drawn: list[int] = []
        """Requests with a temperature above 0."""
        self._sampling = sampling
        self._sampler = sampler
        flat: list[int] = metadata.draft_token_ids.tolist()
        place = 0
        for row, count in enumerate(metadata.num_draft_tokens):
            self.drafts.append(flat[place : place + count])
            self.starts.append(place + row)
            place += count

    def draw(self, rows: list[int], depth: int) -> list[int]:
        """Draw the token after `depth` drafted ones for each of these requests, with vLLM's sampler and their generators."""
        owners = torch.tensor(rows, device=self.final.device)
        places = torch.tensor([self.starts[row] + depth for row in rows], device=self.final.device)
        generators = self._sampling.generators
        own = {place: generators[row] for place, row in enumerate(rows) if row in generators}
        drawn, _ = self._sampler.topk_topp_sampler(self._scaled(places, owners), own, *self._cuts(owners))
        return [int(token) for token in drawn.tolist()]

    def places_of(self, rows: list[int]) -> torch.Tensor:
        """Return the rows of `final` that belong to these requests, one request after another."""
        places = [self.starts[row] + node for row in rows for node in range(len(self.drafts[row]) + 1)]
        return torch.tensor(places, dtype=torch.int64, device=self.final.device)

    def logits_of(self, rows: list[int]) -> torch.Tensor:
        """Return these rows with temperature and top-k/top-p applied; removed ids have -inf."""
        from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p

        owners = [row for row in rows for _ in range(len(self.drafts[row]) + 1)]
        index = torch.tensor(owners, dtype=torch.int64, device=self.final.device)
        processed: torch.Tensor = apply_top_k_top_p(
            self._scaled(self.places_of(rows), index), *self._cuts(index)
        )
        return processed

    def _scaled(self, places: torch.Tensor, owners: torch.Tensor) -> torch.Tensor:
        logits = self.final[places].div_(self._sampling.temperature[owners].unsqueeze(1))
        for processor in self._sampling.logitsprocs.argmax_invariant:
            logits = processor.apply(logits)  # vLLM runs none of its own with speculation
        return logits

    def _cuts(self, owners: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        return _taken(self._sampling.top_k, owners), _taken(self._sampling.top_p, owners)


def _taken(values: torch.Tensor | None, index: torch.Tensor) -> torch.Tensor | None:
    return None if values is None else values[index]
