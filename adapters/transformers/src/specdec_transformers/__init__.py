"""specdec inside `generate` of transformers: `model.generate(..., custom_generate=specdec_transformers.generate)`."""

from __future__ import annotations

import specdec  # noqa: F401  before torch is imported, because it sets how OpenMP threads wait
from specdec_transformers.attached import metrics, release
from specdec_transformers.generate import generate

__all__ = ["generate", "metrics", "release"]
