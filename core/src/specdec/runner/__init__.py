"""Runs one model on its own paged KV cache: the scorer's target, and the models and heads of proposers.

A proposer gets a `ModelRunner` from `TargetHandle.make_runner`, or a `HeadRunner` from `make_head_runner`.
It keeps each request's rows in a `SlotPool` over the runner's cache.
"""

from specdec.runner.chain import ChainRules, Chains, ChainWork, NewRows
from specdec.runner.fused.linear import speed_up_linears
from specdec.runner.head import DraftHead, HeadOutput, HeadParts
from specdec.runner.head_runner import HeadRunner
from specdec.runner.inference import in_inference_mode
from specdec.runner.kv_cache import KVCache, LayerShape
from specdec.runner.layers import decoder_layers, input_embedding, output_head
from specdec.runner.model_runner import ModelRunner
from specdec.runner.packed import ForwardOutput, PackedBatch, Segment
from specdec.runner.slot_pool import SlotPool

__all__ = [
    "ChainRules",
    "ChainWork",
    "Chains",
    "DraftHead",
    "ForwardOutput",
    "HeadOutput",
    "HeadParts",
    "HeadRunner",
    "KVCache",
    "LayerShape",
    "ModelRunner",
    "NewRows",
    "PackedBatch",
    "Segment",
    "SlotPool",
    "decoder_layers",
    "in_inference_mode",
    "input_embedding",
    "output_head",
    "speed_up_linears",
]
