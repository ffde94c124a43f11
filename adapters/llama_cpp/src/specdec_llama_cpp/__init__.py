"""specdec in llama-cpp-python: `Llama(model_path=..., logits_all=True, draft_model=specdec_llama_cpp.Drafter({...}))`."""

from __future__ import annotations

from specdec_llama_cpp.drafter import Drafter

__all__ = ["Drafter"]
