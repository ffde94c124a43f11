"""Registers core's scorer through the same door as everybody's."""

from __future__ import annotations

from specdec.hooks import hookimpl
from specdec.interfaces.scorer import Scorer


@hookimpl
def specdec_register_scorers() -> list[type[Scorer]]:
    """Return core's scorers."""
    from specdec.scorers.transformers import TransformersScorer

    return [TransformersScorer]
