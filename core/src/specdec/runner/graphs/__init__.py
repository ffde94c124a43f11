"""Captured passes: what the device runs again without the host naming every operation."""

from specdec.runner.graphs.pass_graphs import MAX_BYTES, PagedBackend, PassGraphs, RunPass
from specdec.runner.graphs.recorder import CudaRecorder, Recorder, Recording

__all__ = ["MAX_BYTES", "CudaRecorder", "PagedBackend", "PassGraphs", "Recorder", "Recording", "RunPass"]
