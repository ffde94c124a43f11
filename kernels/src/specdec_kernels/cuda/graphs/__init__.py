"""Passes and draft loops captured in graphs, which the device replays without launches of single operations."""

from specdec_kernels.cuda.graphs.draft_graphs import DraftGraphs
from specdec_kernels.cuda.graphs.pass_graphs import PassGraphs
from specdec_kernels.cuda.graphs.recorder import CudaRecorder, Recorder, Recording
from specdec_kernels.cuda.graphs.recordings import MAX_BYTES
from specdec_kernels.cuda.graphs.step_graphs import StepGraphs

__all__ = [
    "MAX_BYTES",
    "CudaRecorder",
    "DraftGraphs",
    "PassGraphs",
    "Recorder",
    "Recording",
    "StepGraphs",
]
