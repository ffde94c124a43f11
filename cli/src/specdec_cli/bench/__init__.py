"""`specdec bench`: measures configurations against plain decoding: same prompts, same seeds, one run, interleaved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec_cli.bench.comparison import Comparison
    from specdec_cli.bench.contender import BASELINE, Contender, contenders_of
    from specdec_cli.bench.session import Session
    from specdec_cli.bench.turn import Turn
    from specdec_cli.bench.workload import Workload

__all__ = [
    "BASELINE",
    "Comparison",
    "Contender",
    "Session",
    "Turn",
    "Workload",
    "contenders_of",
]

__getattr__ = lazily(__name__)
