"""Adaptive drafting: measures how much drafting pays off, and decides again while the engine runs."""

from specdec.engine.pace.pace import Pace

__all__ = ["Pace"]
