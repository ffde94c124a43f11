"""Built-in scorers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec_runtime.scorers.memory import num_slots
    from specdec_runtime.scorers.runner_factory import RunnerFactory
    from specdec_runtime.scorers.transformers import TransformersScorer

__all__ = [
    "RunnerFactory",
    "TransformersScorer",
    "num_slots",
]

__getattr__ = lazily(__name__)
