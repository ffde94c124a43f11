"""Passes and draft loops captured in graphs, which the device replays without launches of single operations."""

from specdec.runner.graphs.chain_graphs import ChainGraphs
from specdec.runner.graphs.pass_graphs import PagedBackend, PassGraphs, RunPass
from specdec.runner.graphs.recorder import CudaRecorder, Recorder, Recording
from specdec.runner.graphs.recordings import MAX_BYTES

__all__ = [
    "MAX_BYTES",
    "ChainGraphs",
    "CudaRecorder",
    "PagedBackend",
    "PassGraphs",
    "Recorder",
    "Recording",
    "RunPass",
]
