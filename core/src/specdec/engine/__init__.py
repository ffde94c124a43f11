"""The verify loop: schedule, propose, score, verify, commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec.engine.build import BuiltEngine as BuiltEngine
    from specdec.engine.build import assemble as assemble
    from specdec.engine.build import make_sampler as make_sampler
    from specdec.engine.check_verdict import problem_of as problem_of
    from specdec.engine.detokenizer import IncrementalDetokenizer as IncrementalDetokenizer
    from specdec.engine.engine import Engine as Engine
    from specdec.engine.intake import SEED_BITS as SEED_BITS
    from specdec.engine.intake import Intake as Intake
    from specdec.engine.intake import signed as signed
    from specdec.engine.kv_manager import KVManager as KVManager
    from specdec.engine.metrics import Counter as Counter
    from specdec.engine.metrics import EngineMetrics as EngineMetrics
    from specdec.engine.metrics import Gauge as Gauge
    from specdec.engine.metrics import Histogram as Histogram
    from specdec.engine.metrics import Metric as Metric
    from specdec.engine.metrics import PerProposer as PerProposer
    from specdec.engine.metrics import Vector as Vector
    from specdec.engine.openmp import release_threads as release_threads
    from specdec.engine.ranks import TensorParallel as TensorParallel
    from specdec.engine.request import Request as Request
    from specdec.engine.scheduler_output import SchedulerOutput as SchedulerOutput
    from specdec.engine.sequence import Sequence as Sequence
    from specdec.engine.speculation.adaptive import MeasuredStep as MeasuredStep
    from specdec.engine.speculation.adaptive.backoff import Backoff as Backoff
    from specdec.engine.speculation.adaptive.step_costs import ByCount as ByCount
    from specdec.engine.speculation.adaptive.step_costs import StepCosts as StepCosts
    from specdec.engine.speculation.check_draft import DraftError as DraftError
    from specdec.engine.speculation.check_draft import check_draft as check_draft
    from specdec.engine.speculation.check_draft import select_rows as select_rows
    from specdec.engine.speculation.delivery import Delivery as Delivery
    from specdec.engine.speculation.draws import EngineDraws as EngineDraws
    from specdec.engine.speculation.guard import ProposerGuard as ProposerGuard
    from specdec.engine.speculation.opening import no_states as no_states
    from specdec.engine.speculation.opening import open_speculation as open_speculation
    from specdec.engine.speculation.speculation import Speculation as Speculation
    from specdec.engine.speculation.top_k import TopK as TopK
    from specdec.engine.speculation.undeclared import undeclared as undeclared
    from specdec.engine.stop_checker import StopChecker as StopChecker

__all__ = [
    "SEED_BITS",
    "Backoff",
    "BuiltEngine",
    "ByCount",
    "Counter",
    "Delivery",
    "DraftError",
    "Engine",
    "EngineDraws",
    "EngineMetrics",
    "Gauge",
    "Histogram",
    "IncrementalDetokenizer",
    "Intake",
    "KVManager",
    "MeasuredStep",
    "Metric",
    "PerProposer",
    "ProposerGuard",
    "Request",
    "SchedulerOutput",
    "Sequence",
    "Speculation",
    "StepCosts",
    "StopChecker",
    "TensorParallel",
    "TopK",
    "Vector",
    "assemble",
    "check_draft",
    "make_sampler",
    "no_states",
    "open_speculation",
    "problem_of",
    "release_threads",
    "select_rows",
    "signed",
    "undeclared",
]

__getattr__ = lazily(
    __name__,
    {
        "build": "BuiltEngine assemble make_sampler",
        "check_verdict": "problem_of",
        "detokenizer": "IncrementalDetokenizer",
        "engine": "Engine",
        "intake": "Intake SEED_BITS signed",
        "kv_manager": "KVManager",
        "metrics": "Counter EngineMetrics Gauge Histogram Metric PerProposer Vector",
        "openmp": "release_threads",
        "ranks": "TensorParallel",
        "request": "Request",
        "scheduler_output": "SchedulerOutput",
        "sequence": "Sequence",
        "speculation.adaptive": "MeasuredStep",
        "speculation.adaptive.backoff": "Backoff",
        "speculation.adaptive.step_costs": "ByCount StepCosts",
        "speculation.check_draft": "DraftError check_draft select_rows",
        "speculation.delivery": "Delivery",
        "speculation.draws": "EngineDraws",
        "speculation.guard": "ProposerGuard",
        "speculation.opening": "no_states open_speculation",
        "speculation.speculation": "Speculation",
        "speculation.top_k": "TopK",
        "speculation.undeclared": "undeclared",
        "stop_checker": "StopChecker",
    },
)
