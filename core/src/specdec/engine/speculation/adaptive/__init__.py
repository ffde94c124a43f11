"""Adaptive drafting: measures how much drafting pays off, and decides again while the engine runs."""

from specdec.engine.speculation.adaptive.adaptive_depth import AdaptiveDepth, MeasuredStep

__all__ = ["AdaptiveDepth", "MeasuredStep"]
