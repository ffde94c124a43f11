"""specdec: speculative decoding in which every method is a plugin.

Names are imported on first use: importing specdec (and `specdec --help`) does not import torch.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdec.arguments import LLMOptions as LLMOptions
    from specdec.arguments import SpeculativeOptions as SpeculativeOptions
    from specdec.async_llm import AsyncLLM as AsyncLLM
    from specdec.engine_options import EngineOptions as EngineOptions
    from specdec.errors import ConfigError as ConfigError
    from specdec.errors import EngineError as EngineError
    from specdec.errors import ModelError as ModelError
    from specdec.errors import PluginError as PluginError
    from specdec.hooks import hookimpl as hookimpl
    from specdec.interfaces import SPECDEC_API as SPECDEC_API
    from specdec.interfaces import Capability as Capability
    from specdec.interfaces import CheckedDraft as CheckedDraft
    from specdec.interfaces import DeviceProposeBatch as DeviceProposeBatch
    from specdec.interfaces import Draft as Draft
    from specdec.interfaces import DraftSampling as DraftSampling
    from specdec.interfaces import FinishReason as FinishReason
    from specdec.interfaces import ProposeBatch as ProposeBatch
    from specdec.interfaces import Proposer as Proposer
    from specdec.interfaces import ProposerConfig as ProposerConfig
    from specdec.interfaces import Sampler as Sampler
    from specdec.interfaces import SamplerConfig as SamplerConfig
    from specdec.interfaces import ScoreBatch as ScoreBatch
    from specdec.interfaces import Scorer as Scorer
    from specdec.interfaces import Scores as Scores
    from specdec.interfaces import TargetHandle as TargetHandle
    from specdec.interfaces import TargetInfo as TargetInfo
    from specdec.interfaces import Verdict as Verdict
    from specdec.interfaces import VerifyBatch as VerifyBatch
    from specdec.llm import LLM as LLM
    from specdec.outputs import CompletionOutput as CompletionOutput
    from specdec.outputs import DraftStep as DraftStep
    from specdec.outputs import Logprob as Logprob
    from specdec.outputs import RequestMetrics as RequestMetrics
    from specdec.outputs import RequestOutput as RequestOutput
    from specdec.sampling_params import SamplingParams as SamplingParams
    from specdec.structured_outputs import StructuredOutputsParams as StructuredOutputsParams

__version__ = "0.1.0"

if "OMP_WAIT_POLICY" not in os.environ:
    # GNU OpenMP spins for milliseconds while it waits for a thread that another process has pushed off its
    # core. A pass of a small model then takes a hundred times longer. OpenMP reads the variable when it is
    # loaded, so it must be set before torch is imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

_HOME = {
    "AsyncLLM": "specdec.async_llm",
    "CompletionOutput": "specdec.outputs",
    "ConfigError": "specdec.errors",
    "DraftStep": "specdec.outputs",
    "EngineError": "specdec.errors",
    "EngineOptions": "specdec.engine_options",
    "LLM": "specdec.llm",
    "LLMOptions": "specdec.arguments",
    "Logprob": "specdec.outputs",
    "ModelError": "specdec.errors",
    "PluginError": "specdec.errors",
    "RequestMetrics": "specdec.outputs",
    "RequestOutput": "specdec.outputs",
    "SamplingParams": "specdec.sampling_params",
    "SpeculativeOptions": "specdec.arguments",
    "StructuredOutputsParams": "specdec.structured_outputs",
    "hookimpl": "specdec.hooks",
}

__all__ = [
    "LLM",
    "SPECDEC_API",
    "AsyncLLM",
    "Capability",
    "CheckedDraft",
    "CompletionOutput",
    "ConfigError",
    "DeviceProposeBatch",
    "Draft",
    "DraftSampling",
    "DraftStep",
    "EngineError",
    "EngineOptions",
    "FinishReason",
    "LLMOptions",
    "Logprob",
    "ModelError",
    "PluginError",
    "ProposeBatch",
    "Proposer",
    "ProposerConfig",
    "RequestMetrics",
    "RequestOutput",
    "Sampler",
    "SamplerConfig",
    "SamplingParams",
    "ScoreBatch",
    "Scorer",
    "Scores",
    "SpeculativeOptions",
    "StructuredOutputsParams",
    "TargetHandle",
    "TargetInfo",
    "Verdict",
    "VerifyBatch",
    "hookimpl",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'specdec' has no attribute {name!r}")
    value = getattr(import_module(_HOME.get(name, "specdec.interfaces")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
