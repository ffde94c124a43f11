"""The worker for CPUs."""

from __future__ import annotations

from vllm.v1.worker.cpu_worker import CPUWorker as StockWorker

from specdec_vllm.workers.bound import BoundWorker


class CPUWorker(BoundWorker, StockWorker):  # type: ignore[misc]  # vLLM is not installed where types are checked
    """vLLM's worker for CPUs, with a proposer of specdec: `--worker-cls specdec_vllm.CPUWorker`."""
