"""What runs a model, as proposers and backends see it.

A proposer's model has a `Runner`; what it runs is a `PackedBatch`, in `forward`, on the `KVCache` of its runner. `chain` has
its draft loops, `steps` those without a cache, `head` draft heads. A `ModelBackend` offers forms of models, attention and
products.
"""

from __future__ import annotations

from specdec.field_docs import show_fields
from specdec_runtime.interfaces.attention import Attention, AttentionFactory, AttentionNeeds
from specdec_runtime.interfaces.backend import ModelBackend
from specdec_runtime.interfaces.blocks import BlockEmbedding, BlockLinear
from specdec_runtime.interfaces.cache_reader import CacheReader
from specdec_runtime.interfaces.chain import Chain, ChainRules, Chains, ChainWork, ContextRows, NewRows
from specdec_runtime.interfaces.form import Form, PassLimits
from specdec_runtime.interfaces.forward import ForwardOutput, HostRows, PackedBatch, Segment
from specdec_runtime.interfaces.head import DraftHead, HeadParts
from specdec_runtime.interfaces.kv_cache import KVCache, LayerShape
from specdec_runtime.interfaces.layer_states import DraftStates
from specdec_runtime.interfaces.quantized import QuantizedLinear
from specdec_runtime.interfaces.runner import Runner, Wanted
from specdec_runtime.interfaces.steps import StepLoop, Steps

__all__ = [
    "Attention",
    "AttentionFactory",
    "AttentionNeeds",
    "BlockEmbedding",
    "BlockLinear",
    "CacheReader",
    "Chain",
    "ChainRules",
    "ChainWork",
    "Chains",
    "ContextRows",
    "DraftHead",
    "DraftStates",
    "Form",
    "ForwardOutput",
    "HeadParts",
    "HostRows",
    "KVCache",
    "LayerShape",
    "ModelBackend",
    "NewRows",
    "PackedBatch",
    "PassLimits",
    "QuantizedLinear",
    "Runner",
    "Segment",
    "StepLoop",
    "Steps",
    "Wanted",
]

show_fields(
    *(found for found in map(globals().get, __all__) if type(found) is type), DraftHead, Form, ModelBackend
)
