"""specdec inside `generate` of transformers: `model.generate(..., custom_generate=specdec_transformers.generate)`."""

from __future__ import annotations

from specdec_transformers.attached import metrics, release
from specdec_transformers.generate import generate

__all__ = ["generate", "metrics", "release"]
