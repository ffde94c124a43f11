"""`choose`: by measurement, what has the most expected tokens per second."""

from specdec_plugin_composite.choose.choose import Choose

__all__ = ["Choose"]
