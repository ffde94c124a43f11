"""How much is worth drafting: measured, and decided anew while the engine runs."""

from specdec.engine.pace.pace import Pace

__all__ = ["Pace"]
