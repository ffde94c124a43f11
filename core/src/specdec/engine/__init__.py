"""The verify loop: schedule, propose, score, verify, commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec.engine.containment.draft import DraftError, check_draft, equal_siblings, select_rows
    from specdec.engine.containment.guard import ProposerGuard, undeclared
    from specdec.engine.containment.verdict import problem_of
    from specdec.engine.engine import Engine
    from specdec.engine.kv_manager import KVManager
    from specdec.engine.late_drafts import aligned, num_aligned
    from specdec.engine.metrics import EngineMetrics
    from specdec.engine.request import Request
    from specdec.engine.sequence import Sequence
    from specdec.engine.slot_pool import BlockAllocator, SlotPool
    from specdec.engine.speculation.delivery import Delivery
    from specdec.engine.speculation.plugin_view import EngineDraws
    from specdec.engine.speculation.speculation import Speculation
    from specdec.engine.speculation.top_k import TopK
    from specdec.engine.step import Row, Step

__all__ = [
    "BlockAllocator",
    "Delivery",
    "DraftError",
    "Engine",
    "EngineDraws",
    "EngineMetrics",
    "KVManager",
    "ProposerGuard",
    "Request",
    "Row",
    "Sequence",
    "SlotPool",
    "Speculation",
    "Step",
    "TopK",
    "aligned",
    "check_draft",
    "equal_siblings",
    "num_aligned",
    "problem_of",
    "select_rows",
    "undeclared",
]

__getattr__ = lazily(__name__)
