"""Measures configurations against plain decoding: same prompts, same seeds, one run, interleaved."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdec_bench.comparison import Comparison
    from specdec_bench.contender import BASELINE, Contender, contenders_of
    from specdec_bench.session import Session
    from specdec_bench.turn import Turn
    from specdec_bench.workload import Workload

_HOME = {
    "BASELINE": "specdec_bench.contender",
    "Comparison": "specdec_bench.comparison",
    "Contender": "specdec_bench.contender",
    "Session": "specdec_bench.session",
    "Turn": "specdec_bench.turn",
    "Workload": "specdec_bench.workload",
    "contenders_of": "specdec_bench.contender",
}
"""The module of each name; imported on first use, so that `specdec --help` imports no torch."""

__all__ = [
    "BASELINE",
    "Comparison",
    "Contender",
    "Session",
    "Turn",
    "Workload",
    "contenders_of",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'specdec_bench' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
