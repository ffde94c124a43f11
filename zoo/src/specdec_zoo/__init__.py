"""specdec-zoo: a small trained target, draft artefacts for it and for SmolLM2, held-out prompts, and where all came from."""

from __future__ import annotations

from specdec_zoo.artefacts import draft, names, path
from specdec_zoo.manifest import manifest
from specdec_zoo.prompts import KINDS, Prompt, prompts

__all__ = ["KINDS", "Prompt", "draft", "manifest", "names", "path", "prompts"]
