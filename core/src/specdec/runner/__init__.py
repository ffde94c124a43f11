"""One model on a paged cache of its own: what the scorer runs the target with, and proposers their models.

A proposer gets a `ModelRunner` from `TargetHandle.make_runner` and keeps each request's rows in a `SlotPool` over its cache.
"""

from specdec.runner.fused.chain import ChainRules, Chains
from specdec.runner.kv_cache import KVCache
from specdec.runner.model_runner import ModelRunner
from specdec.runner.packed import ForwardOutput, PackedBatch, Segment
from specdec.runner.slot_pool import SlotPool

__all__ = [
    "ChainRules",
    "Chains",
    "ForwardOutput",
    "KVCache",
    "ModelRunner",
    "PackedBatch",
    "Segment",
    "SlotPool",
]
