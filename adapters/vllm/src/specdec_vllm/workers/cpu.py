"""The worker for CPUs."""

from __future__ import annotations

from vllm.v1.worker.cpu_worker import CPUWorker as StockWorker

from specdec_vllm.generators import Rewinding
from specdec_vllm.workers.bound import BoundWorker


class CPUWorker(BoundWorker, StockWorker):  # type: ignore[misc]  # vLLM is not installed where types are checked
    """vLLM's worker for CPUs, with a proposer of specdec."""

    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        """Load the target and the proposer, and apply the workaround for seeded requests."""
        super().load_model(load_dummy_weights=load_dummy_weights)
        if hasattr(self.model_runner, "_bookkeeping_sync"):
            Rewinding(self.model_runner).attach()
