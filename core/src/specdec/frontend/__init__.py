"""`LLM` and `AsyncLLM`: what callers give becomes requests of an engine, on their threads or on its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec.frontend.construction import build
    from specdec.frontend.imports import importing
    from specdec.frontend.input_processor import InputProcessor
    from specdec.frontend.loading_lines import regularly
    from specdec.frontend.no_drafts import no_drafts_message, no_drafts_warning
    from specdec.frontend.prompts import Prompt
    from specdec.frontend.threads import release_threads

__all__ = [
    "InputProcessor",
    "Prompt",
    "build",
    "importing",
    "no_drafts_message",
    "no_drafts_warning",
    "regularly",
    "release_threads",
]

__getattr__ = lazily(__name__)
