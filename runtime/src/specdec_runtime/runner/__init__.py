"""Runs one module on its own KV cache: the scorer's target, and the models and heads of proposers.

A proposer gets a runner from `TargetHandle.make_runner`.
"""

from __future__ import annotations

from specdec_runtime.runner.binding import ATTENTION_NAME
from specdec_runtime.runner.own_forward import threads_for
from specdec_runtime.runner.runner import ModuleRunner, in_inference_mode
from specdec_runtime.runner.sdpa import SdpaAttention

__all__ = [
    "ATTENTION_NAME",
    "ModuleRunner",
    "SdpaAttention",
    "in_inference_mode",
    "threads_for",
]
