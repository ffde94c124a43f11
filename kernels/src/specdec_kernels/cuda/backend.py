"""The backend `triton`."""

from __future__ import annotations

import os
from functools import partial
from importlib.util import find_spec
from typing import ClassVar

import torch

from specdec.interfaces import SPECDEC_API, Declined, PassMemory, RowOperations, Verify
from specdec_runtime.interfaces import (
    AttentionFactory,
    AttentionNeeds,
    DraftHead,
    Form,
    ModelBackend,
    Runner,
    StepLoop,
    Steps,
)


class TritonBackend(ModelBackend):
    """Triton kernels and CUDA graphs; with TRITON_INTERPRET=1 the attention also runs on the CPU, for tests."""

    name: ClassVar[str] = "triton"
    api_version: ClassVar[int] = SPECDEC_API
    order: ClassVar[int] = 10

    def attention(self, needs: AttentionNeeds) -> AttentionFactory | Declined:
        """See `ModelBackend.attention`."""
        is_interpreted = os.environ.get("TRITON_INTERPRET") == "1"
        declined = _declined(needs.device, is_elsewhere=needs.is_requested and is_interpreted)
        if declined is not None:
            return declined
        from specdec_kernels.cuda.attention import PagedAttention

        return partial(PagedAttention, is_invariant=needs.is_invariant)

    def form(self, runner: Runner, stage: int, inner: Form) -> Form | Declined:
        """See `ModelBackend.form`."""
        declined = _declined(runner.device)
        if declined is not None:
            return declined
        from specdec_kernels.cuda.attention import PagedAttention
        from specdec_kernels.cuda.form import GraphForm
        from specdec_kernels.cuda.graphs import CudaRecorder
        from specdec_kernels.triton.compile_time import watch_compilation

        if not isinstance(runner.attention, PagedAttention):
            return Declined("graphs need its own attention")
        is_single = not isinstance(runner.module, DraftHead) or runner.module.num_stages == 1
        watch_compilation()
        recorder = CudaRecorder(runner.device)
        return GraphForm(runner, inner, recorder, has_chain=runner.is_draft and is_single)

    def steps(self, steps: Steps, given: torch.Tensor, memory: PassMemory) -> StepLoop | Declined:
        """See `ModelBackend.steps`."""
        declined = _declined(given.device)
        if declined is not None:
            return declined
        from specdec_kernels.cuda.graphs import CudaRecorder, StepGraphs

        return StepGraphs(steps, CudaRecorder(given.device), given, memory)

    def verifier(self, sampler: str, device: torch.device) -> Verify | Declined:
        """See `Backend.verifier`."""
        declined = _declined(device)
        if declined is not None:
            return declined
        from specdec_kernels.cuda.verification import SCHEMES, RejectionOnDevice, StrictOnDevice

        if sampler == "strict":
            return StrictOnDevice()
        if sampler not in SCHEMES:
            return Declined(f"it does not verify by {sampler!r}")
        return RejectionOnDevice(SCHEMES[sampler])

    def row_operations(self, device: torch.device) -> RowOperations | Declined:
        """See `Backend.row_operations`."""
        declined = _declined(device)
        if declined is not None:
            return declined
        from specdec_kernels.cuda.rows import DeviceRows

        return DeviceRows(device)


def _declined(device: torch.device, *, is_elsewhere: bool = False) -> Declined | None:
    """Return why the kernels do not run on a device; None if they do."""
    if find_spec("triton") is None:
        return Declined("triton is not installed: pip install 'specdec-kernels[triton]'")
    if device.type != "cuda" and not is_elsewhere:
        return Declined(
            "it needs a CUDA device (or TRITON_INTERPRET=1, for tests of its attention)", is_elsewhere=True
        )
    return None
