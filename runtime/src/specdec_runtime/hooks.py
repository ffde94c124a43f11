"""Registers the scorer of `transformers` models, its parts, and the samplers that are not lossless."""

from __future__ import annotations

from specdec import hookimpl
from specdec.interfaces import Part, Sampler, Scorer


@hookimpl
def specdec_register_scorers() -> type[Scorer]:
    """Return the scorer."""
    from specdec_runtime.scorers.transformers import TransformersScorer

    return TransformersScorer


@hookimpl
def specdec_register_samplers() -> list[type[Sampler]]:
    """Return the samplers that do not keep the target's distribution."""
    from specdec_runtime.samplers.synthetic import SyntheticSampler
    from specdec_runtime.samplers.typical import TypicalSampler

    return [SyntheticSampler, TypicalSampler]


@hookimpl
def specdec_register_parts() -> list[type[Part]]:
    """Return the parts `chat_templates`, `gguf`, `structured_outputs` and `tensor_parallel`."""
    from specdec_runtime.chat.conversation import TokenizerTemplates
    from specdec_runtime.gguf.files import GgufFiles
    from specdec_runtime.parallel.ranks import Ranks
    from specdec_runtime.structured_outputs.compiler import LlguidanceGrammars

    return [TokenizerTemplates, GgufFiles, LlguidanceGrammars, Ranks]
