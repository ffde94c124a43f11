"""Registers the built-in scorer with the hook that plugins use."""

from __future__ import annotations

from specdec.hooks import hookimpl
from specdec.interfaces.scorer import Scorer


@hookimpl
def specdec_register_scorers() -> list[type[Scorer]]:
    """Return the built-in scorers."""
    from specdec.scorers.transformers import TransformersScorer

    return [TransformersScorer]
