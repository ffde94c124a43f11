"""Registers the scorer of `transformers` models, and what it does for core beside scoring."""

from __future__ import annotations

from specdec import hookimpl
from specdec.interfaces import Part, Scorer


@hookimpl
def specdec_register_scorers() -> type[Scorer]:
    """Return the scorer."""
    from specdec_runtime.scorers.transformers import TransformersScorer

    return TransformersScorer


@hookimpl
def specdec_register_parts() -> list[type[Part]]:
    """Return the parts `chat_templates`, `gguf`, `structured_outputs` and `tensor_parallel`."""
    from specdec_runtime.chat.conversation import TokenizerTemplates
    from specdec_runtime.gguf.files import GgufFiles
    from specdec_runtime.parallel.ranks import Ranks
    from specdec_runtime.structured_outputs.compiler import LlguidanceGrammars

    return [TokenizerTemplates, GgufFiles, LlguidanceGrammars, Ranks]
