"""The worker for GPUs."""

from __future__ import annotations

from vllm.v1.worker.gpu_worker import Worker as StockWorker

from specdec_vllm.workers.bound import BoundWorker


class GPUWorker(BoundWorker, StockWorker):  # type: ignore[misc]  # vLLM is not installed where types are checked
    """vLLM's worker for GPUs, with a proposer of specdec."""
