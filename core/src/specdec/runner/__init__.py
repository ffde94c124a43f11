"""Runs one module on its own KV cache: the scorer's target, and the models and heads of proposers.

A proposer gets a runner from `TargetHandle.make_runner`; `SlotPool` gives out the slots of a runner's cache.
"""

from __future__ import annotations

from specdec.interfaces.sent import sent, sent_together
from specdec.runner.binding import ATTENTION_NAME
from specdec.runner.runner import ModuleRunner, in_inference_mode
from specdec.runner.sdpa import SdpaAttention
from specdec.runner.slot_pool import BlockAllocator, SlotPool

__all__ = [
    "ATTENTION_NAME",
    "BlockAllocator",
    "ModuleRunner",
    "SdpaAttention",
    "SlotPool",
    "in_inference_mode",
    "sent",
    "sent_together",
]
