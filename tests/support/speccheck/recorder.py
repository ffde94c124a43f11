"""A recorder for hosts without graphs: a replay runs the function again on the tensors it was recorded with."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specdec import LLM, RequestOutput, registry
from specdec.interfaces import Backend, Declined, RowBlock, ScoreBatch
from specdec_kernels.cuda.attention import PagedAttention
from specdec_kernels.cuda.backend import TritonBackend
from specdec_kernels.cuda.form import GraphForm
from specdec_kernels.cuda.graphs import Recording
from specdec_kernels.cuda.paged_pass import PagedPass, PassNumbers, pass_numbers
from specdec_runtime.interfaces import DraftHead, Form, HostRows, PackedBatch, Runner
from specdec_runtime.scorers import transformers
from specdec_runtime.scorers.transformers import pack

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


class RecordingBackend(TritonBackend):
    """The backend `triton` on the CPU, with a recorder in place of graphs.

    Args:
        recorder: the recorder; None runs every pass eagerly.
    """

    def __init__(self, recorder: Rerun | None) -> None:
        self._recorder = recorder

    def form(self, runner: Runner, stage: int, inner: Form) -> Form | Declined:
        if self._recorder is None or not isinstance(runner.attention, PagedAttention):
            return Declined("nothing is recorded")
        is_single = not isinstance(runner.module, DraftHead) or runner.module.num_stages == 1
        return GraphForm(runner, inner, self._recorder, has_chain=runner.is_draft and is_single)


def use_backends(monkeypatch: pytest.MonkeyPatch, *backends: Backend) -> None:
    """Make these the only backends, and give passes the numbers that recordings are sent, as on devices."""
    monkeypatch.setattr(registry, "backends", lambda: backends)
    monkeypatch.setattr(transformers, "pack", _packed_with_numbers)


def _packed_with_numbers(batch: ScoreBatch, device: torch.device) -> tuple[PackedBatch, list[RowBlock]]:
    packed, blocks = pack(batch, device)
    if packed.host is None:
        starts = [(segment.first_slot + segment.num_cached, segment.num_rows) for segment in packed.segments]
        slots = np.concatenate([np.arange(start, start + count) for start, count in starts])
        wanted = None if packed.logits_rows is None else packed.logits_rows.numpy()
        rows = HostRows(packed.token_ids.numpy(), packed.positions.numpy(), slots, wanted)
        packed = PackedBatch.of_rows(rows, packed.segments, device, None, batch.transfer)
    return packed, blocks


class StandInAttention:
    """Describes passes over `NUM_SLOTS` slots as the kernels' attention does, and keeps the rows it was told to use."""

    dtypes = (torch.float32,)
    rows: PagedPass | None = None

    def numbers(self, batch: PackedBatch) -> PassNumbers:
        return pass_numbers(batch.segments, NUM_SLOTS, {}, is_exact=False)

    def use(self, batch: PackedBatch, rows: PagedPass) -> None:
        self.rows = rows


def told(llm: LLM, outputs: list[RequestOutput]) -> tuple[list[list[int]], int, int]:
    """Return the texts, how many tokens the engine has drafted so far, and how many of them stood."""
    metrics = llm._built.engine.metrics
    texts = [output.outputs[0].token_ids for output in outputs]
    return texts, metrics.num_draft_tokens, metrics.num_accepted_tokens
