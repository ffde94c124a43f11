"""specdec: speculative decoding in which every method is a plugin.

Names are imported on first use: importing specdec (and `specdec --help`) does not import torch.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec.arguments import LLMOptions, SpeculativeOptions
    from specdec.engine_options import EngineOptions
    from specdec.errors import ConfigError, EngineError, ModelError, PluginError
    from specdec.frontend.async_llm import AsyncLLM
    from specdec.frontend.llm import LLM
    from specdec.hooks import hookimpl
    from specdec.interfaces import (
        SPECDEC_API,
        Capability,
        CheckedDraft,
        Draft,
        DraftSampling,
        FinishReason,
        ProposeBatch,
        Proposer,
        ProposerConfig,
        Sampler,
        SamplerConfig,
        ScoreBatch,
        Scorer,
        Scores,
        TargetHandle,
        TargetInfo,
        Verdict,
        VerifyBatch,
    )
    from specdec.lora import LoRARequest
    from specdec.outputs import CompletionOutput, DraftStep, Logprob, RequestMetrics, RequestOutput
    from specdec.sampling_params import SamplingParams
    from specdec.structured_outputs import StructuredOutputsParams

__version__ = "0.1.0"

if "OMP_WAIT_POLICY" not in os.environ:
    # GNU OpenMP spins for milliseconds while it waits for a thread that another process has pushed off its
    # core. A pass of a small model then takes a hundred times longer. OpenMP reads the variable when it is
    # loaded, so it must be set before torch is imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

__all__ = [
    "LLM",
    "SPECDEC_API",
    "AsyncLLM",
    "Capability",
    "CheckedDraft",
    "CompletionOutput",
    "ConfigError",
    "Draft",
    "DraftSampling",
    "DraftStep",
    "EngineError",
    "EngineOptions",
    "FinishReason",
    "LLMOptions",
    "LoRARequest",
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

__getattr__ = lazily(__name__)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
