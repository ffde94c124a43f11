"""Adaptive drafting: measures how much drafting pays off, and decides again while the engine runs."""

from specdec.engine.speculation.pace.pace import MeasuredStep, Pace

__all__ = ["MeasuredStep", "Pace"]
