"""Measures configurations against plain decoding: same prompts, same seeds, one run, interleaved."""

from specdec.bench.comparison import Comparison
from specdec.bench.contender import BASELINE, Contender, contenders_of
from specdec.bench.environment import environment
from specdec.bench.session import Session
from specdec.bench.turn import Turn
from specdec.bench.workload import Workload

__all__ = [
    "BASELINE",
    "Comparison",
    "Contender",
    "Session",
    "Turn",
    "Workload",
    "contenders_of",
    "environment",
]
