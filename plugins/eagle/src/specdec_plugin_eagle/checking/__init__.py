"""`specdec check-head`: which reading of a head's files its weights were trained for."""

from specdec_plugin_eagle.checking.check import check_head

__all__ = ["check_head"]
