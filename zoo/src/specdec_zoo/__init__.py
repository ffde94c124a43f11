"""specdec-zoo: a small trained target, draft artefacts for it, held-out prompts, and where all came from."""

from __future__ import annotations

from specdec_zoo.artefacts import names, path
from specdec_zoo.manifest import manifest
from specdec_zoo.prompts import KINDS, Prompt, prompts

__all__ = ["KINDS", "Prompt", "manifest", "names", "path", "prompts"]
