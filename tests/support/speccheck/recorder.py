"""A recorder for hosts without graphs: a replay runs the function again on the tensors it was recorded with."""

from __future__ import annotations

import torch

from specdec import LLM, RequestOutput
from specdec.runner import PackedBatch
from specdec.runner.graphs import Recording
from specdec.runner.paged_pass import PagedPass, paged_pass

NUM_SLOTS = 1024


class Rerun:
    """Stands in for `CudaRecorder`; what it returns is written in place, as graphs do, and counts as 1000 bytes."""

    def __init__(self, spoil: float = 1.0, failure: str | None = None) -> None:
        self.spoil, self.failure = spoil, failure

    def record(self, function) -> Recording:
        if self.failure is not None:
            raise RuntimeError(self.failure)
        outputs = function()

        def replay() -> None:
            for place, value in zip(outputs, function(), strict=True):
                place.copy_(value * self.spoil)

        return Recording(replay, outputs, 1000)


class StandInBackend:
    """Prepares passes over `NUM_SLOTS` slots as the kernels' backend does, and keeps the rows it was told to use."""

    dtypes = (torch.float32,)
    rows: PagedPass | None = None

    def prepare(self, batch: PackedBatch) -> tuple[PagedPass, torch.Tensor | None]:
        return paged_pass(batch, NUM_SLOTS, is_exact=False), None

    def use(self, batch: PackedBatch, rows: PagedPass, tree_mask: torch.Tensor | None) -> None:
        self.rows = rows


def told(llm: LLM, outputs: list[RequestOutput]) -> tuple[list[list[int]], int, int]:
    """Return the texts, how many tokens the engine has drafted so far, and how many of them stood."""
    metrics = llm._built.engine.metrics
    texts = [output.outputs[0].token_ids for output in outputs]
    return texts, metrics.num_draft_tokens, metrics.num_accepted_tokens
