"""The verify loop: schedule, propose, score, verify, commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec.engine.build import BuiltEngine as BuiltEngine
    from specdec.engine.check_verdict import problem_of as problem_of
    from specdec.engine.conversation import conversation_prompt as conversation_prompt
    from specdec.engine.delivery import Delivery as Delivery
    from specdec.engine.delivery import no_states as no_states
    from specdec.engine.draws import EngineDraws as EngineDraws
    from specdec.engine.engine import Engine as Engine
    from specdec.engine.intake import Intake as Intake
    from specdec.engine.kv_manager import KVManager as KVManager
    from specdec.engine.message_content import as_text as as_text
    from specdec.engine.message_content import checked_message as checked_message
    from specdec.engine.metrics import Counter as Counter
    from specdec.engine.metrics import Gauge as Gauge
    from specdec.engine.metrics import Histogram as Histogram
    from specdec.engine.metrics import Metric as Metric
    from specdec.engine.metrics import Vector as Vector
    from specdec.engine.openmp import release_threads as release_threads
    from specdec.engine.plan import Plan as Plan
    from specdec.engine.request import Request as Request
    from specdec.engine.sanitize import DraftError as DraftError
    from specdec.engine.sanitize import check_draft as check_draft
    from specdec.engine.sanitize import select_rows as select_rows
    from specdec.engine.sequence import Sequence as Sequence
    from specdec.engine.stopping import StopWatch as StopWatch
    from specdec.engine.text import TextStream as TextStream

__all__ = [
    "BuiltEngine",
    "Counter",
    "Delivery",
    "DraftError",
    "Engine",
    "EngineDraws",
    "Gauge",
    "Histogram",
    "Intake",
    "KVManager",
    "Metric",
    "Plan",
    "Request",
    "Sequence",
    "StopWatch",
    "TextStream",
    "Vector",
    "as_text",
    "check_draft",
    "checked_message",
    "conversation_prompt",
    "no_states",
    "problem_of",
    "release_threads",
    "select_rows",
]

__getattr__ = lazily(
    __name__,
    {
        "BuiltEngine": "build",
        "Counter": "metrics",
        "Delivery": "delivery",
        "DraftError": "sanitize",
        "Engine": "engine",
        "EngineDraws": "draws",
        "Gauge": "metrics",
        "Histogram": "metrics",
        "Intake": "intake",
        "KVManager": "kv_manager",
        "Metric": "metrics",
        "Plan": "plan",
        "Request": "request",
        "Sequence": "sequence",
        "StopWatch": "stopping",
        "TextStream": "text",
        "Vector": "metrics",
        "as_text": "message_content",
        "check_draft": "sanitize",
        "checked_message": "message_content",
        "conversation_prompt": "conversation",
        "no_states": "delivery",
        "problem_of": "check_verdict",
        "release_threads": "openmp",
        "select_rows": "sanitize",
    },
)
